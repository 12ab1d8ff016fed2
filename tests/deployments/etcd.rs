//! etcd. Leases are counted by a clock that no date moves.

use std::time::Duration;

use lock_client::{Locks, etcd::Etcd};

use super::{Storages, Then};

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Four times as long as etcd waits before it looks for leases that have expired.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// The year by etcd's clock.
async fn year(server: &testbed::Etcd) -> i32 {
    let date = server.date(0).await.unwrap();
    date.split(' ').nth(3).unwrap().parse().unwrap()
}

#[tokio::test]
async fn etcd_whose_clock_jumps() {
    let storages = Storages::start().await;
    let server = testbed::Etcd::start_with_own_clock().await.unwrap();
    let locks = Locks::new(Etcd::open(&server.url()).unwrap());
    let clock = server.clock().unwrap();
    let before = year(&server).await;
    let first = storages.first(&locks, "ahead").await;
    clock.jump(2 * YEAR).unwrap();
    assert_eq!(year(&server).await, before + 2, "the control");
    tokio::time::sleep(LONG_ENOUGH).await;
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);
    let first = storages.first(&locks, "back").await;
    clock.jump_back(2 * YEAR).unwrap();
    assert_eq!(year(&server).await, before, "the control");
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);
}
