//! `lock-client list` and `break`, and the labels that they and `status` show.

use lock_client::Ttl;
use testbed::Redis;

use crate::{
    cluster::cluster_of,
    command::{BUSY, assert_failed, events, lock_client, locks},
    names::name,
};

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[tokio::test]
async fn status_of_an_acquired_lock_names_the_host_the_process_and_the_label() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    for (options, label) in [
        (&[][..], format!("{} (pid ", host())),
        (&["--label", "nightly"], format!("nightly on {} (pid ", host())),
    ] {
        let acquired = lock_client(&[&["acquire", "r", "--locks", &url], options].concat()).await;
        let handle = &events(&acquired)[0];
        let state = &events(&lock_client(&["status", "r", "--locks", &url]).await)[0];
        assert!(state["label"].as_str().unwrap().starts_with(&label), "{state}");
        assert!(state["since_ms"].as_u64().unwrap() > 1_700_000_000_000, "{state}");
        let released = lock_client(&["release", &handle.to_string(), "--locks", &url]).await;
        assert!(released.status.success(), "{released:?}");
    }
}

#[tokio::test]
async fn list_prints_the_state_of_each_held_lock() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let none = lock_client(&["list", "--locks", &url]).await;
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    for lock in ["orders/1", "orders/2", "invoices/1"] {
        assert!(lock_client(&["acquire", lock, "--locks", &url]).await.status.success());
    }
    let listed = events(&lock_client(&["list", "orders/", "--locks", &url]).await);
    let names: Vec<_> = listed.iter().map(|state| state["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["orders/1", "orders/2"]);
    assert!(listed.iter().all(|state| state["held"] == true && state["queued"] == 0));
    assert_eq!(events(&lock_client(&["list", "--locks", &url]).await).len(), 3);
}

#[tokio::test]
async fn list_shows_the_locks_of_redlock_once() {
    let cluster = cluster_of(3).await;
    let urls = cluster.urls().join(" ");
    let redis = ["--locks", urls.as_str()];
    let acquired = lock_client(&[&["acquire", "r"], &redis[..]].concat()).await;
    assert!(acquired.status.success(), "{acquired:?}");
    let listed = events(&lock_client(&[&["list"], &redis[..]].concat()).await);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["name"], "r");
}

#[tokio::test]
async fn break_frees_a_lock_that_still_has_the_token() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let url = redis.url();
    let _left = lock_client(&["acquire", "r", "--locks", &url, "--ttl", "1h"]).await;
    let break_lock = async |token: &'static str| {
        lock_client(&["break", "r", "--token", token, "--locks", &url]).await
    };
    assert_failed(&break_lock("32").await, 75, "lock `r` has another token: 33");
    let busy = lock_client(&["acquire", "r", "--no-wait", "--locks", &url]).await;
    assert_failed(&busy, 75, BUSY);
    let broken = break_lock("33").await;
    assert_eq!((broken.status.code(), broken.stderr.as_slice()), (Some(0), &[][..]));
    let next = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    assert_eq!(next.token().unwrap().as_u64(), 34);
    assert_failed(&break_lock("33").await, 75, "lock `r` has another token: 34");
    next.release().await.unwrap();
    assert_failed(&break_lock("34").await, 0, "lock `r` is free already");
}
