//! ZooKeeper. Sessions are counted by a clock that no date moves.

use std::time::Duration;

use lock_client::{Locks, zookeeper::ZooKeeper};

use super::{Storages, TWO_HOLDERS_OF_ONE_TOKEN, Then};
use crate::{lock_service::lasting, names::name};

const YEAR: Duration = Duration::from_secs(366 * 86_400);

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
    assert_eq!(year(&server, "/after").await, before + 2, "the control");
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);
    let first = storages.first(&locks, "back").await;
    clock.jump_back(2 * YEAR).unwrap();
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);
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
    let first = storages.first(&locks(), "r").await;
    server.restore().await.unwrap();
    assert_eq!(storages.then(first, &locks()).await, TWO_HOLDERS_OF_ONE_TOKEN);
}
