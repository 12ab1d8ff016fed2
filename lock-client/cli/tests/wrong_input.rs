//! Lock services that can't be used as they are named, and requests that they can't carry out.

use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use futures_util::future::join_all;
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use testbed::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    command::{assert_failed, command, lock_client, output},
    services::Service,
};

/// Fails each of these commands, and prints no password.
async fn assert_rejected(url: &str, code: i32, reason: &str) {
    let commands = [&["acquire", "r", "--no-wait"][..], &["status", "r"], &["list"]];
    // At once, because each may wait for a service that is silent.
    let rejections = commands.map(async |command| {
        // On a busy machine, the reason may take longer than the default of half a second. A service that is
        // silent takes four times as long.
        let options = ["--locks", url, "--answer-timeout", "2s"];
        let output = lock_client(&[command, &options].concat()).await;
        assert_failed(&output, code, reason);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("secret"), "{stderr}");
        assert!(output.stdout.is_empty());
    });
    join_all(rejections).await;
}

#[tokio::test]
async fn urls_that_name_no_lock_service_are_64() {
    for (urls, reason) in [
        ("consul://:secret@h", "`consul://` is no scheme of a lock service: one of redis://"),
        ("http://u:secret@a:2379", "`http://` is no scheme of a lock service: for etcd, write"),
        ("u:secret@a", "and URL 1 does not: one of redis://"),
        ("rediss://:secret@a/0,rediss://b/0", "separate the URLs of nodes by spaces"),
        ("redis://a:6379,b:6379", "separate the URLs of nodes by spaces"),
        ("etcd://u:secret@a etcd://b", "separate the members of etcd by commas"),
        ("postgres://a/b postgres://u:secret@c/d", "2 URLs name PostgreSQL, which takes one"),
        ("mariadb://a/b redis://:secret@c", "different lock services, MariaDB and Redis"),
        ("redis://user@a", "not a usable Redis URL: a user is given without a password"),
        ("etcd://user@a", "not a usable etcd URL: a user is given without a password"),
        ("zookeeper://u:secret@a zookeeper://b", "separate the members of ZooKeeper by commas"),
        ("zookeeper://user@a", "not a usable ZooKeeper URL: a user is given without a password"),
        ("zookeeper://a?tls-ca=/ca.pem", "a URL looks like zookeeper://HOST[:PORT],HOST[:PORT]"),
        ("postgres://u:secret@h:port/d", "the URL of the database can't be used: "),
        ("mariadb://h:port/d", "invalid port number; a URL looks like mariadb://USER"),
        ("postgres://u:secret/2@h/d", "write %2F for a /, %3F for a ? and %23 for a # in the"),
        ("mariadb://u:secret?2@h/d", "write %2F for a /, %3F for a ? and %23 for a # in the"),
        ("redis://:my secret@h", "and URL 2 does not"),
        ("sqlite:", "the file is missing; a URL looks like sqlite:FILE"),
        ("sqlite://?mode=rw", "the file is missing; a URL looks like sqlite:FILE"),
        ("sqlite::memory:", "a database in memory has no other clients"),
    ] {
        assert_rejected(urls, 64, reason).await;
    }
}

/// A URL with the wrong password is rejected for this reason. The control: with the right one, the
/// service answers, though the tables or the rights on them may be missing.
async fn assert_password_decides(url: impl Fn(&str) -> String, right: &str, reason: &str) {
    assert_rejected(&url("secret"), 69, reason).await;
    let answered =
        lock_client(&["status", "r", "--locks", &url(right), "--answer-timeout", "10s"]).await;
    let stderr = String::from_utf8_lossy(&answered.stderr);
    let has_answered = answered.status.success()
        || stderr.contains("apply migrations/")
        || stderr.contains("execute command denied");
    assert!(has_answered, "{stderr}");
}

#[tokio::test]
async fn wrong_passwords_are_69() {
    let redis = Redis::start_on_tcp(&["--requirepass", "right"]).await.unwrap();
    let url = |password: &str| redis.url_as("default", password);
    assert_password_decides(url, "right", "Password authentication failed").await;

    let mut etcd = Etcd::start().await.unwrap();
    etcd.require_users().await.unwrap();
    let url = |password: &str| etcd.url().replace("etcd://", &format!("etcd://locker:{password}@"));
    let reason = "authentication failed, invalid user ID or password";
    assert_password_decides(url, "p%40ss", reason).await;

    // ZooKeeper takes every user, and lets only the owner of a node use it.
    let zookeeper = ZooKeeper::start().await.unwrap();
    let url = |password: &str| format!("zookeeper://u:{password}@{}", zookeeper.address(0));
    let acquire = ["acquire", "r", "--ttl", "60s", "--locks", &url("right")];
    assert_eq!(lock_client(&acquire).await.status.code(), Some(0));
    let reason = "no permission: the nodes belong to another user";
    assert_password_decides(url, "right", reason).await;

    let folder = tempfile::tempdir().unwrap();
    let hba = folder.path().join("hba.conf");
    std::fs::write(&hba, "local all postgres trust\nlocal all all scram-sha-256\n").unwrap();
    let readable = Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).unwrap();
    let setting = format!("hba_file={}", hba.display());
    let postgres = Postgres::start_with(&[&setting]).await.unwrap();
    let mut owner = PgConnection::connect(&postgres.url()).await.unwrap();
    owner.execute("create role locker login password 'right'").await.unwrap();
    let url =
        |password: &str| postgres.url().replace("//postgres@", &format!("//locker:{password}@"));
    let reason = "password authentication failed for user \"locker\"";
    assert_password_decides(url, "right", reason).await;

    let mariadb = MariaDb::start().await.unwrap();
    let mut root = MySqlConnection::connect(&mariadb.url()).await.unwrap();
    root.execute("create user locker@localhost identified by 'right'").await.unwrap();
    let url = |password: &str| mariadb.url().replace("//root@", &format!("//locker:{password}@"));
    assert_password_decides(url, "right", "Access denied for user 'locker'").await;
}

/// MariaDB blocks the host of a client that begins too many connections in other protocols.
#[tokio::test]
async fn server_that_rejects_a_client_gets_no_request_of_another_protocol() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let mut first_bytes = Vec::<u8>::new();
    let server = async {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let length = connection.read(&mut request).await.unwrap();
            first_bytes.extend(request[..length].first());
            let _ = connection.write_all(b"-NOAUTH Authentication required.\r\n").await;
        }
    };
    tokio::select! {
        () = assert_rejected(&url, 69, "") => {}
        () = server => {}
    }
    assert!(first_bytes.contains(&b'*'), "the control");
    // HTTP, ZooKeeper and PostgreSQL.
    let others = [b'G', b's', 0];
    assert!(first_bytes.iter().all(|byte| !others.contains(byte)), "{first_bytes:?}");
}

#[tokio::test]
async fn encryption_that_the_server_does_not_have_is_69() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let etcd = Etcd::start().await.unwrap();
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (postgres, mariadb) = (Service::postgres().await, Service::mariadb().await);
    let encrypted = [
        (redis.url().replace("redis:", "rediss:"), "this port takes no encrypted connections"),
        (etcd.url().replace("etcd:", "etcds:"), "TLS"),
        (zookeeper.url().replace("zookeeper:", "zookeepers:"), "does this port take TLS?"),
        (format!("{}&sslmode=require", postgres.url), "TLS"),
        (format!("{}&ssl-mode=REQUIRED", mariadb.url), "TLS"),
    ];
    join_all(encrypted.iter().map(|(url, reason)| assert_rejected(url, 69, reason))).await;
}

#[tokio::test]
async fn plain_connection_to_a_port_that_takes_tls_only_is_69() {
    let (etcd, zookeeper) =
        (Etcd::start_tls().await.unwrap(), ZooKeeper::start_tls().await.unwrap());
    let plain = [
        etcd.url().replace("etcds:", "etcd:"),
        zookeeper.url().replace("zookeepers:", "zookeeper:"),
    ];
    join_all(plain.iter().map(|url| assert_rejected(url, 69, "does this port take TLS only?")))
        .await;
}

#[tokio::test]
async fn ttl_that_etcd_does_not_grant_is_64_with_the_shortest() {
    let etcd = Etcd::start_with(&["--election-timeout=4000"]).await.unwrap();
    let wrong = [
        ("2s", "a ttl of 2 s is too short; the shortest of this etcd is 6 s"),
        (
            "6500ms",
            "a ttl in etcd is in whole seconds, 2 s at least by default, and 6500 ms is not",
        ),
        ("1ms", "a ttl is from 10 ms to 7 days"),
    ];
    assert_ttls_rejected(&etcd.url(), wrong, "6s").await;
}

#[tokio::test]
async fn ttl_that_zookeeper_does_not_grant_is_64_with_the_limit() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let wrong = [
        ("999ms", "a ttl of 999 ms is too short; the shortest session of this ZooKeeper lasts"),
        ("11m", "is too long; the longest session of this ZooKeeper lasts 600000 ms"),
        ("1ms", "a ttl is from 10 ms to 7 days"),
    ];
    assert_ttls_rejected(&zookeeper.url(), wrong, "10m").await;
}

/// Rejects each of these ttls for its reason. The control: the right one is granted.
async fn assert_ttls_rejected(url: &str, wrong: [(&str, &str); 3], right: &str) {
    for (ttl, reason) in wrong {
        for command in [&["acquire", "r"][..], &["run", "r", "--", "true"]] {
            let ttl = ["--locks", url, "--answer-timeout", "5s", "--ttl", ttl];
            let rejected = lock_client(&[&command[..2], &ttl, &command[2..]].concat()).await;
            assert_failed(&rejected, 64, reason);
        }
    }
    let patient = ["acquire", "r", "--locks", url, "--answer-timeout", "5s"];
    let granted = lock_client(&[&patient[..], &["--ttl", right]].concat()).await;
    assert_eq!(granted.status.code(), Some(0), "{granted:?}");
}

#[tokio::test]
async fn root_that_does_not_exist_is_69() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let url = format!("{}/apps", zookeeper.url());
    let acquire = ["acquire", "r", "--locks", &url];
    assert_failed(&lock_client(&acquire).await, 69, "the node /apps does not exist");
    // The control.
    zookeeper.cli(&["create", "/apps"]).await.unwrap();
    let granted = lock_client(&acquire).await;
    assert_eq!(granted.status.code(), Some(0), "{granted:?}");
}

#[tokio::test]
async fn missing_tables_are_69_with_the_migration() {
    for (service, folder) in [
        (Service::postgres_without_tables().await, "migrations/postgres/lock"),
        (Service::mariadb_without_tables().await, "migrations/mariadb/lock"),
        (Service::sqlite_without_tables().await, "migrations/sqlite/lock"),
    ] {
        assert_rejected(&service.url, 69, &format!("apply {folder}")).await;
    }
}

/// As in psql. The error shows it, because the database has no such user.
#[tokio::test]
async fn postgres_url_without_a_user_means_the_user_of_the_system() {
    let server = Postgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    // Tests may run as the user that the database has.
    connection.execute("create role another superuser login").await.unwrap();
    let mut connection =
        PgConnection::connect(&server.url().replace("postgres@", "another@")).await.unwrap();
    connection.execute("alter role postgres rename to nobody_else").await.unwrap();
    let user = std::process::Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(user.stdout).unwrap();
    let mut command = command(&["status", "r", "--locks", &server.url().replace("postgres@", "")]);
    command.env_remove("PGUSER");
    let reason = format!("role \"{}\" does not exist", user.trim());
    assert_failed(&output(command).await, 69, &reason);
}

#[tokio::test]
async fn file_that_does_not_exist_is_69() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/none.db", folder.path().display());
    assert_rejected(&url, 69, "to make one, apply migrations/sqlite/lock").await;
    assert!(!folder.path().join("none.db").exists(), "it is not created");
}

#[tokio::test]
async fn options_for_redis_are_64_elsewhere() {
    for (url, reason) in [
        ("etcd://127.0.0.1:1", "--keep-counter-for is for one Redis, not for etcd"),
        ("zookeeper://127.0.0.1:1", "--keep-counter-for is for one Redis, not for ZooKeeper"),
        ("sqlite:none.db", "--keep-counter-for is for one Redis, not for SQLite"),
    ] {
        let acquire = ["acquire", "r", "--keep-counter-for", "1h", "--locks", url];
        assert_failed(&lock_client(&acquire).await, 64, reason);
        let status = ["node", "status", "--locks", url];
        assert_failed(&lock_client(&status).await, 64, "this is for the nodes of Redlock");
    }
}
