//! etcd. Its steady clock decides whether a lease is over.

use std::time::Duration;

use lock_client::{Locks, etcd::Etcd};
use testbed::wait::until_async;
use tokio::time::sleep;

use super::{LONGEST_EXPIRY, SHORT_MS, Storages, Then, YEAR};
use crate::{lock_service::unrenewed, names::name};

/// Four times as long as etcd waits before it looks for leases that have expired.
const LOOKS: Duration = Duration::from_secs(2);

/// The year by etcd's clock.
async fn year(server: &testbed::Etcd) -> i32 {
    let answer = server.version(0).await.unwrap();
    let date = answer.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap();
    date.split(' ').nth(3).unwrap().parse().unwrap()
}

/// etcd 3.4 ends a lease when its date has come, too.
async fn waits_for_the_date(server: &testbed::Etcd) -> bool {
    server.version(0).await.unwrap().contains(r#""etcdserver":"3.4."#)
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
    let ahead = year(&server).await;
    assert!(ahead > before, "the control: a static etcd would keep the machine's clock");
    sleep(LOOKS).await;
    assert_eq!(storages.then(first, &locks).await, Then::Excluded);

    // Nobody is left that would delete the lock when its time has passed.
    locks.acquire(&name("back"), unrenewed(SHORT_MS)).await.unwrap().detach().unwrap();
    clock.jump_back(2 * YEAR).unwrap();
    assert!(year(&server).await < ahead, "the control");
    let is_free = async || Ok(locks.status(&name("back")).await?.held.is_none());
    if waits_for_the_date(&server).await {
        sleep(Duration::from_millis(SHORT_MS) + LOOKS).await;
        assert!(!is_free().await.unwrap());
        clock.jump(2 * YEAR).unwrap();
    }
    until_async(LONGEST_EXPIRY, is_free).await.unwrap();
}
