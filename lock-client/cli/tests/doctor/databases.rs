//! `doctor` on databases: healthy ones, and with one problem each.

use std::{path::Path, process::Command};

use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use testbed::{
    MariaDb, PgBouncer, Postgres, postgres::program, process::Process, wait::until_async,
};

use super::{SOON, doctor, examine};
use crate::services::Service;

/// Temporary files may be in memory, which loses everything.
async fn sqlite_on_disk() -> Service {
    Service::sqlite_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).await
}

#[tokio::test]
async fn databases_that_lose_nothing_are_ok() {
    for (service, server) in [
        (Service::postgres().await, "postgresql "),
        (Service::mariadb().await, "mariadb "),
        (sqlite_on_disk().await, "sqlite "),
    ] {
        for _ in 0..2 {
            let report = examine(&service.url).await;
            let document = &report.document;
            assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]), "{document}");
            assert!(document["system"].as_str().unwrap().starts_with(server), "{document}");
            report.assert_finds("locking", "ok", "acquired, renewed and released a lock");
        }
    }
}

/// An error has no line of PostgreSQL's own source.
#[tokio::test]
async fn missing_database_is_named() {
    let server = Postgres::start().await.unwrap();
    let url = server.url_of("absent");
    let output = doctor(&["--locks", &url]).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    assert!(stderr.ends_with("database \"absent\" does not exist\n"), "{stderr}");
}

#[tokio::test]
async fn missing_tables_are_unfit() {
    for service in [
        Service::postgres_without_tables().await,
        Service::mariadb_without_tables().await,
        Service::sqlite_without_tables().await,
    ] {
        let report = examine(&service.url).await;
        report.assert_finds("lock_tables", "unfit", "missing");
        assert_eq!(report.code, 1);
        match service.url.strip_prefix("sqlite:") {
            // A file of something else stays as it is.
            Some(file) => assert_eq!(std::fs::metadata(file).unwrap().len(), 0),
            None => report.assert_finds("locking", "unfit", "can't acquire a lock"),
        }
    }
}

#[tokio::test]
async fn settings_of_postgres_that_lose_commits_are_unfit_for_a_fence() {
    for setting in ["fsync", "full_page_writes"] {
        let postgres = Postgres::start_with(&[&format!("{setting}=off")]).await.unwrap();
        let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
        lock_client::postgres::install(&mut connection).await.unwrap();
        let report = examine(&postgres.url()).await;
        report.assert_finds(setting, "unfit-for-fence", "off");
        assert_eq!((report.code, report.complaints().as_slice()), (4, &[setting][..]));
    }
    let service = Service::postgres().await;
    let mut connection = PgConnection::connect(&service.url).await.unwrap();
    connection.execute("alter table fenced_lock.lock set unlogged").await.unwrap();
    let report = examine(&service.url).await;
    report.assert_finds("table", "unfit-for-fence", "unlogged: fenced_lock.lock");
    connection.execute("alter table fenced_lock.lock set logged").await.unwrap();
    assert_eq!(examine(&service.url).await.code, 0, "as the cure says");
    // The functions set it by themselves.
    connection.execute("alter database postgres set synchronous_commit = off").await.unwrap();
    let report = examine(&service.url).await;
    report.assert_finds("synchronous_commit", "warning", "off, set by: database");
    assert_eq!(report.code, 0);
}

#[tokio::test]
async fn asynchronous_replica_of_postgres_is_unfit_for_a_fence() {
    let postgres = Postgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    lock_client::postgres::install(&mut connection).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Command::new(program("pg_receivewal").unwrap());
    receiver.arg("-h").arg(postgres.socket_folder()).args(["-U", "postgres", "-D"]);
    receiver.arg(folder.path());
    let _receiver = Process::spawn("receiver", &receiver, folder.path()).unwrap();
    let pool = sqlx::PgPool::connect_lazy(&postgres.url()).unwrap();
    let replicated = async || {
        let count = sqlx::query_scalar("select count(*) from pg_stat_replication");
        let count: i64 = count.fetch_one(&pool).await?;
        Ok(count > 0)
    };
    until_async(SOON, replicated).await.unwrap();
    let report = examine(&postgres.url()).await;
    report.assert_finds("standbys", "unfit-for-fence", "pg_receivewal (async)");
    assert_eq!(report.complaints(), ["synchronous_standby_names", "standbys"]);
}

/// A standby takes no lock, and no LISTEN.
#[tokio::test]
async fn standby_of_postgres_is_unfit() {
    let postgres = Postgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    lock_client::postgres::install(&mut connection).await.unwrap();
    let standby = postgres.start_replica().await.unwrap();
    standby.catch_up(&postgres).await.unwrap();
    let report = examine(&standby.url()).await;
    report.assert_finds("primary", "unfit", "a standby");
    assert_eq!((report.code, report.complaints().as_slice()), (1, &["primary", "locking"][..]));
}

#[tokio::test]
async fn pgbouncer_and_missing_rights_are_found() {
    let postgres = Postgres::start().await.unwrap();
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    lock_client::postgres::install(&mut connection).await.unwrap();
    let bouncer = PgBouncer::start(&postgres).await.unwrap();
    let report = examine(&bouncer.url()).await;
    report.assert_finds("pooler", "warning", "connections share sessions");
    assert_eq!((report.code, report.complaints().as_slice()), (0, &["pooler"][..]));

    connection.execute("create role locker login").await.unwrap();
    let url = postgres.url().replace("//postgres@", "//locker@");
    let report = examine(&url).await;
    report.assert_finds("lock_tables", "unfit", "not allowed for this user: acquire, renew");
    report.assert_finds("locking", "unfit", "grant usage on schema fenced_lock");
    connection.execute("grant usage on schema fenced_lock to locker").await.unwrap();
    let report = examine(&url).await;
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
    assert_eq!(report.document["user"], "locker");
}

#[tokio::test]
async fn missing_rights_on_mariadb_are_found() {
    let mariadb = MariaDb::start().await.unwrap();
    let mut root = MySqlConnection::connect(&mariadb.url()).await.unwrap();
    // Everybody has all rights on the database `test`.
    root.execute("create user locker@localhost; create database locks; use locks").await.unwrap();
    lock_client::mariadb::install(&mut root).await.unwrap();
    let url = mariadb.url().replace("//root@", "//locker@").replace("/test?", "/locks?");
    for procedure in ["acquire", "renew", "reissue", "release", "status", "held_names"] {
        let grant =
            format!("grant execute on procedure locks.fenced_lock_{procedure} to locker@localhost");
        root.execute(sqlx::AssertSqlSafe(grant)).await.unwrap();
        if procedure == "release" {
            let report = examine(&url).await;
            let missing = "missing, or not allowed for this user: status, held_names";
            report.assert_finds("lock_tables", "unfit", missing);
            assert_eq!(report.code, 1);
        }
    }
    let report = examine(&url).await;
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
}

#[tokio::test]
async fn settings_of_mariadb_that_lose_commits_are_found() {
    let flush = "innodb_flush_log_at_trx_commit";
    for (option, verdict, found, complaints) in [
        ("--innodb-flush-log-at-trx-commit=2", "unfit-for-fence", "2", &[flush][..]),
        ("--innodb-flush-log-at-trx-commit=0", "unfit-for-fence", "0", &[flush]),
        ("--read-only", "unfit", "read_only is ON", &["primary", "locking"]),
    ] {
        let (_mariadb, _, report) = mariadb_with(&[option]).await;
        report.assert_finds(complaints[0], verdict, found);
        assert_eq!(report.complaints(), complaints);
    }
}

/// With a binary log, InnoDB does not sync its own log at each commit, because a restart completes it
/// from the binary log. `3` syncs it all the same.
#[tokio::test]
async fn binary_log_that_is_not_synced_is_unfit_for_a_fence() {
    let (mariadb, mut connection, report) = mariadb_with(&["--log-bin"]).await;
    report.assert_finds("sync_binlog", "unfit-for-fence", "0");
    // The cure.
    for command in report.worst("sync_binlog")["cure"]["commands"].as_array().unwrap() {
        let command = sqlx::AssertSqlSafe(command.as_str().unwrap().to_owned());
        connection.execute(command).await.unwrap();
    }
    let report = examine(&mariadb.url()).await;
    report.assert_finds("sync_binlog", "ok", "1");
    report.assert_finds("replicas", "warning", "log_bin is ON");
    for (options, verdict) in [
        (["--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"], "ok"),
        (["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=3"], "ok"),
        (["--sync-binlog=2", "--innodb-flush-log-at-trx-commit=1"], "unfit-for-fence"),
    ] {
        let [sync, flush] = options;
        let (_mariadb, _, report) = mariadb_with(&["--log-bin", sync, flush]).await;
        report.assert_finds("sync_binlog", verdict, "");
    }
}

/// A MariaDB with options and locks, a connection to it, and the report about it.
async fn mariadb_with(options: &[&str]) -> (MariaDb, MySqlConnection, super::Report) {
    let mariadb = MariaDb::start_with(options).await.unwrap();
    let mut connection = MySqlConnection::connect(&mariadb.url()).await.unwrap();
    lock_client::mariadb::install(&mut connection).await.unwrap();
    let report = examine(&mariadb.url()).await;
    (mariadb, connection, report)
}

#[tokio::test]
async fn file_that_can_only_be_read_is_unfit() {
    let service = sqlite_on_disk().await;
    let report = examine(&format!("{}?mode=ro", service.url)).await;
    report.assert_finds("locking", "unfit", "can't acquire a lock");
    report.assert_finds("journal_mode", "warning", "delete");
    let text = super::doctor(&["--locks", &service.url]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("sqlite 3."), "{text}");
    assert!(text.contains("ok               journal_mode: wal"), "{text}");
}
