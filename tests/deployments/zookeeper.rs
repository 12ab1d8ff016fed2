//! ZooKeeper. Its steady clock decides whether a session is over.

use std::time::Duration;

use lock_client::{Locks, zookeeper::ZooKeeper};
use testbed::{Proxy, wait::until_async};
use tokio::time::sleep;

use super::{LONGEST_EXPIRY, SHORT_MS, Storages, TWO_HOLDERS_OF_ONE_TOKEN, Then, YEAR};
use crate::{
    lock_service::{lasting, unrenewed},
    names::name,
};

/// Ten times as long as ZooKeeper waits before it looks for sessions that have expired.
const LOOKS: Duration = Duration::from_secs(1);

/// The year of a node that is created now, by ZooKeeper's clock.
async fn year(server: &testbed::ZooKeeper, node: &str) -> i32 {
    server.cli(&["create", node]).await.unwrap();
    let stat = server.cli(&["stat", node]).await.unwrap();
    let created = stat.lines().find(|line| line.starts_with("ctime = ")).unwrap();
    created.split(' ').next_back().unwrap().parse().unwrap()
}

#[tokio::test]
async fn zookeeper_whose_clock_jumps() {
    let storages = Storages::start().await;
    let server = testbed::ZooKeeper::start_with_own_clock().await.unwrap();
    let locks = Locks::new(ZooKeeper::open(&server.url()).unwrap());
    let clock = server.clock().unwrap();
    let before = year(&server, "/before").await;
    let first = storages.first(&locks, "ahead").await;
    clock.jump(2 * YEAR).unwrap();
    let ahead = year(&server, "/ahead").await;
    assert!(ahead > before, "the control");
    sleep(LOOKS).await;
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    let _first = locks.acquire(&name("back"), unrenewed(SHORT_MS)).await.unwrap();
    clock.jump_back(2 * YEAR).unwrap();
    assert!(year(&server, "/back").await < ahead, "the control");
    let is_free = async || Ok(locks.status(&name("back")).await?.held.is_none());
    until_async(LONGEST_EXPIRY, is_free).await.unwrap();
}

#[tokio::test]
async fn zookeeper_that_is_restored_from_a_backup() {
    let storages = Storages::start().await;
    let mut server = testbed::ZooKeeper::start().await.unwrap();
    let url = server.url();
    let locks = || Locks::new(ZooKeeper::open(&url).unwrap());
    // The backup has this grant and its release, but not the next grant.
    let lease = locks().acquire(&name("r"), lasting()).await.unwrap();
    // A node that is nobody's keeps ZooKeeper from deleting the container: that takes a token, too.
    server.cli(&["create", "/fenced/queues/r/nobody"]).await.unwrap();
    lease.release().await.unwrap();
    server.back_up().unwrap();
    server.restart().await.unwrap();
    let proxy = Proxy::start(server.address(0)).await.unwrap();
    let cut_off = Locks::new(ZooKeeper::open(&proxy.url("zookeeper")).unwrap());
    let first = storages.first(&cut_off, "r").await;
    // A client that connects to the restored server takes tokens.
    proxy.cut();
    server.restore().await.unwrap();
    assert_eq!(storages.then(first, &locks()).await, TWO_HOLDERS_OF_ONE_TOKEN);
}
