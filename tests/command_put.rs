//! `lock-client put`: its events and its exit codes.

use std::{process::Command, time::Duration};

use crate::command::{
    BUSY, LOST, NO_ANSWER, PATIENCE, assert_failed, events, lock_client, names, without_terminal,
};
use crate::programs::LOCK_CLIENT;
use crate::programs::storage_server;
use crate::services::Service;
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testbed::{Postgres, Proxy, Redis, StorageServer, process::Process};

#[tokio::test]
async fn put_writes_under_a_lock_and_prints_each_step() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    redis.set("fenced:{orders/42}:token", "32").await.unwrap();
    let (redis, storage) = (redis.url(), storage.url());
    let to = ["--locks", &redis, "--storage", storage];

    let first = lock_client(&[&["put", "orders/42", "one"], &to[..]].concat()).await;
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    let steps = events(&first);
    assert_eq!(names(&steps), ["acquired", "read", "lease-checked", "written", "released"]);
    assert_eq!(steps[0]["token"], 33);
    assert!(steps[0]["holder"].as_str().unwrap().ends_with("..."), "the holder is redacted");
    assert_eq!(steps[1]["value"], Value::Null);
    assert_eq!((&steps[3]["token"], &steps[3]["version"]), (&json!(33), &json!(1)));

    let hold = ["put", "orders/42", "two", "--hold", "50ms", "--ttl", "5s"];
    let second = lock_client(&[&hold[..], &to].concat()).await;
    let steps = events(&second);
    let expected = ["acquired", "read", "holding", "lease-checked", "written", "released"];
    assert_eq!(names(&steps), expected);
    assert_eq!((&steps[1]["value"], &steps[1]["version"]), (&json!("one"), &json!(1)));
    assert_eq!(steps[4]["token"], 34);

    let status = lock_client(&["status", "orders/42", "--locks", &redis]).await;
    let free = json!({
        "name": "orders/42", "held": false, "token": null, "holder": null,
        "label": null, "since_ms": null, "remaining_ms": null, "last_token": 34, "nodes": null, "queued": 0,
    });
    assert_eq!(events(&status), [free]);
}

#[tokio::test]
async fn put_and_get_work_with_each_lock_service() {
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    for (resource, service) in [
        ("etcd", Service::etcd().await),
        ("postgres", Service::postgres().await),
        ("mariadb", Service::mariadb().await),
        ("sqlite", Service::sqlite().await),
    ] {
        let mut last = 0;
        for value in ["one", "two"] {
            let to = ["--locks", &service.url, "--storage", storage.url()];
            let put = lock_client(&[&["put", resource, value], &to[..]].concat()).await;
            assert_eq!(put.status.code(), Some(0), "{put:?}");
            let steps = events(&put);
            assert_eq!(names(&steps), ["acquired", "read", "lease-checked", "written", "released"]);
            let token = steps[3]["token"].as_u64().unwrap();
            assert!(token > last, "{token} follows {last}");
            last = token;
            let get = lock_client(&["get", resource, "--storage", storage.url()]).await;
            assert_eq!(get.stdout, value.as_bytes(), "{get:?}");
        }
    }
}

/// The lock's connection is idle while the command waits, and a proxy cuts it.
#[tokio::test]
async fn put_over_a_cut_connection_reports_no_lost_lease() {
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let server = Postgres::start().await.unwrap();
    let mut administrator = PgConnection::connect(&server.url()).await.unwrap();
    lock_client::postgres::install(&mut administrator).await.unwrap();
    let proxy = Proxy::start(server.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let locks = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    let folder = tempfile::tempdir().unwrap();
    let mut command = without_terminal(LOCK_CLIENT);
    command.args(["put", "r", "x", "--step", "--locks", &locks, "--storage", storage.url()]);
    let mut put = Process::spawn("put", &command, folder.path()).unwrap();
    for step in ["acquired", "read", "lease-checked", "written"] {
        let line = put.line(PATIENCE).await.unwrap();
        assert!(line.contains(&format!("\"event\":\"{step}\"")), "{step}: {line}");
        proxy.cut();
        proxy.mend();
        put.write_line("").unwrap();
    }
    let last = put.line(PATIENCE).await.unwrap();
    assert!(last.contains("\"event\":\"released\""), "{last}");
    assert_eq!(put.exit(PATIENCE).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn busy_lock_is_75_and_its_status_shows_the_holder() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "34").await.unwrap();
    let lock = "34 34 0123456789abcdef0123456789abcdef 1790000000000 web-3 (pid 812)";
    redis.set("fenced:{r}:lock", lock).await.unwrap();
    let url = redis.url();
    let to = ["--locks", &url, "--storage", "http://127.0.0.1:1"];
    let busy = lock_client(&[&["put", "r", "x"], &to[..]].concat()).await;
    assert_failed(&busy, 75, BUSY);

    let status = lock_client(&["status", "r", "--locks", &url]).await;
    let held = json!({
        "name": "r", "held": true, "token": 34, "holder": "01234567...",
        "label": "web-3 (pid 812)", "since_ms": 1_790_000_000_000_u64, "remaining_ms": null, "last_token": 34, "nodes": null, "queued": 0,
    });
    assert_eq!(events(&status), [held]);

    redis.set("fenced:{r}:lock", "not a lock of ours").await.unwrap();
    let status = lock_client(&["status", "r", "--locks", &url]).await;
    assert_failed(&status, 69, "holds no lock of ours");
}

#[tokio::test]
async fn expired_lease_is_79_and_nothing_is_written() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = redis.url();
    let to = ["--locks", &url, "--storage", storage.url()];
    let held = ["put", "r", "x", "--ttl", "4s", "--hold", "4500ms"];
    let lost = lock_client(&[&held[..], &to].concat()).await;
    assert_failed(&lost, 79, LOST);
    assert_eq!(names(&events(&lost)), ["acquired", "read", "holding", "lease-lost"]);
    let value = crate::wire::request(storage.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!(value.status, 404);
}

#[tokio::test]
async fn rejected_token_is_reissued_before_the_read() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let headers = [("Fencing-Token", "34")];
    crate::wire::request(storage.url(), "PUT", "/v1/resources/r", &headers, "newer").await;
    let url = redis.url();
    let to = ["--locks", &url, "--storage", storage.url()];
    let healed = lock_client(&[&["put", "r", "x"], &to[..]].concat()).await;
    assert_eq!(healed.status.code(), Some(0), "{healed:?}");
    let steps = events(&healed);
    let expected = ["acquired", "reissued", "read", "lease-checked", "written", "released"];
    assert_eq!(names(&steps), expected);
    assert_eq!((&steps[0]["token"], &steps[1]["token"]), (&json!(33), &json!(35)));
    assert_eq!(steps[2]["value"], "newer");
}

#[tokio::test]
async fn token_that_is_rejected_after_the_read_is_80() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let url = redis.url();
    let mut command = Command::new(LOCK_CLIENT);
    command.args(["put", "r", "x", "--step", "--locks", &url, "--storage", storage.url()]);
    let folder = tempfile::tempdir().unwrap();
    let mut client = Process::spawn("client", &command, folder.path()).unwrap();
    let within = Duration::from_secs(10);
    for step in ["acquired", "read", "lease-checked"] {
        assert!(client.line(within).await.unwrap().contains(step));
        if step != "lease-checked" {
            client.write_line("").unwrap();
        }
    }
    let headers = [("Fencing-Token", "34")];
    crate::wire::request(storage.url(), "PUT", "/v1/resources/r", &headers, "newer").await;
    client.write_line("").unwrap();
    let rejected: Value = serde_json::from_str(&client.line(within).await.unwrap()).unwrap();
    let expected = json!({
        "event": "rejected", "token": 33, "highest_token": 34, "reason": "stale-token",
    });
    assert_eq!(rejected, expected);
    client.write_line("").unwrap();
    assert_eq!(client.exit(within).await.unwrap().code(), Some(80));
}

/// The storage makes the write, and its reply is lost.
#[tokio::test]
async fn put_whose_reply_is_lost_writes_once() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let proxy = Proxy::start(storage.address()).await.unwrap();
    proxy.lose_reply_to("the value");
    let (locks, through) = (redis.url(), proxy.url("http"));
    let put = ["put", "r", "the value", "--locks", &locks, "--storage", &through];
    let put = lock_client(&put).await;
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert!(proxy.has_struck());
    assert_eq!(proxy.requests("the value"), 2, "it was sent again");
    let steps = events(&put);
    assert_eq!(names(&steps), ["acquired", "read", "lease-checked", "written", "released"]);
    assert_eq!(steps[3]["version"], 1);
    let value = crate::wire::request(storage.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!(value.header("etag"), Some("\"1\""));

    // The control: without a number, the same write is made twice.
    let token = (steps[3]["token"].as_u64().unwrap() + 1).to_string();
    let again = async |number: &[(&str, &str)]| {
        let headers = [&[("Fencing-Token", token.as_str())], number].concat();
        for _ in 0..2 {
            crate::wire::request(storage.url(), "PUT", "/v1/resources/r", &headers, "x").await;
        }
        let fence = crate::wire::request(storage.url(), "GET", "/v1/fences/r", &[], "").await;
        fence.json()["version"].clone()
    };
    assert_eq!(again(&[("Fencing-Sequence", "1")]).await, 2);
    assert_eq!(again(&[]).await, 4);
}

#[tokio::test]
async fn signal_ends_a_put_and_releases_the_lock() {
    let redis = Redis::start().await.unwrap();
    let storage = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let url = redis.url();
    let folder = tempfile::tempdir().unwrap();
    let within = Duration::from_secs(20);
    for (option, last, signal) in
        [(&["--hold", "600s"][..], "holding", Signal::TERM), (&["--step"], "acquired", Signal::INT)]
    {
        let mut command = without_terminal(LOCK_CLIENT);
        command.args(["put", "r", "x", "--ttl", "600s"]);
        command.args(["--locks", &url, "--storage", storage.url()]).args(option);
        let mut put = Process::spawn("put", &command, folder.path()).unwrap();
        while !put.line(within).await.unwrap().contains(last) {}
        put.signal(signal).unwrap();
        let status = put.exit(within).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal.as_raw()));
        let lock: Option<String> = redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap();
        assert_eq!(lock, None, "{option:?}");
    }
}

#[tokio::test]
async fn missing_password_is_reported() {
    let redis = Redis::start_with(&["--requirepass", "secret"]).await.unwrap();
    let url = redis.url();
    let commands: [&[&str]; 4] =
        [&["run", "r", "--", "true"], &["acquire", "r"], &["status", "r"], &["watch", "r"]];
    for command in commands {
        let output =
            lock_client(&[&command[..1], &["--locks", &url], &command[1..]].concat()).await;
        assert_failed(&output, 69, "Redis asks for a password");
    }
}

#[tokio::test]
async fn password_of_the_storage_is_not_shown() {
    let url = "ftp://bob:open-sesame@127.0.0.1:1";
    for arguments in [&["get", "--help"][..], &["put", "--help"], &["get", "r"]] {
        let mut command = crate::command::command(arguments);
        command.env("FENCED_STORAGE", url);
        let output = crate::command::output(command).await;
        assert!(!format!("{output:?}").contains("sesame"), "{output:?}");
    }
}

#[tokio::test]
async fn unreachable_redis_and_storage_are_69() {
    let mut redis = Redis::start().await.unwrap();
    let url = redis.url();
    let to = ["--locks", &url, "--storage", "http://127.0.0.1:1"];
    let no_storage = lock_client(&[&["put", "r", "x"], &to[..]].concat()).await;
    assert_failed(&no_storage, 69, "the storage is unavailable");
    assert_eq!(names(&events(&no_storage)), ["acquired", "released"], "the lock is released");

    let other = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let elsewhere = format!("{}/elsewhere", other.url());
    let to_elsewhere = ["--locks", &url, "--storage", &elsewhere];
    let no_storage = lock_client(&[&["put", "r", "x"], &to_elsewhere[..]].concat()).await;
    assert_failed(&no_storage, 69, "the storage rejected the request");
    let steps = events(&no_storage);
    assert_eq!(
        names(&steps),
        ["acquired", "released"],
        "a 404 of another server is no fenced read"
    );

    redis.process().kill().unwrap();
    let no_redis = lock_client(&[&["put", "r", "x"], &to[..]].concat()).await;
    assert_failed(&no_redis, 69, NO_ANSWER);
    let no_redis = lock_client(&["status", "r", "--locks", &url]).await;
    assert_failed(&no_redis, 69, NO_ANSWER);
}

#[tokio::test]
async fn wrong_usage_is_64() {
    let to = ["--locks", "redis://127.0.0.1:1", "--storage", "http://127.0.0.1:1"];
    let cases: [(&[&str], &str); 8] = [
        (&[], "Usage"),
        (&["lock"], "unrecognized subcommand"),
        (&["put", "r"], "required"),
        (&["put", "a//b", "x"], "no segment of a name"),
        (&["put", "r", "x", "--ttl", "soon"], "--ttl"),
        (&["put", "r", "x", "--ttl", "1ms"], "from 10 ms to 7 days"),
        (&["put", "r", "x", "--locks", "nonsense"], "begins with its scheme"),
        (&["put", "r", "x", "--storage", "ftp://h"], "does not begin with http://"),
    ];
    for (arguments, reason) in cases {
        let mut arguments = arguments.to_vec();
        if arguments.first() == Some(&"put") {
            let missing = to.chunks(2).filter(|option| !arguments.contains(&option[0]));
            arguments.extend(missing.flatten().collect::<Vec<_>>());
        }
        let output = lock_client(&arguments).await;
        assert_failed(&output, 64, reason);
    }
    assert_eq!(lock_client(&["--help"]).await.status.code(), Some(0));
}

#[tokio::test]
async fn client_whose_driver_has_gone_releases_the_lock() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let step = ["put", "r", "x", "--step", "--locks", &url, "--storage", "http://127.0.0.1:1"];
    // Stdin is empty here: no line allows the next step.
    let output = lock_client(&step).await;
    assert_failed(&output, 64, "stdin ended");
    assert_eq!(names(&events(&output)), ["acquired", "released"]);
}
