//! Tokens that are reissued, also after ZooKeeper was restored or lost its data.

use fence::Holder;
use lock_client::{Order, backend::Backend};
use testbed::{ZooKeeper, wait::until_async};

use super::service::{SOON, acquired, attempt, busy, client, held, own_node, release, secs};
use crate::names::name;

/// Somebody may delete nodes that persist.
#[tokio::test]
async fn offsets_that_were_deleted_are_made_again() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    for _ in 0..2 {
        zookeeper.cli(&["deleteall", "/fenced/offsets"]).await.unwrap();
        let reissued = locks.reissue(&name("r"), &lock.ownership, lock.token).await.unwrap();
        assert!(reissued > Some(lock.token));
    }
}

#[tokio::test]
async fn restored_zookeeper_continues_above_the_fence() {
    for is_emptied in [false, true] {
        let mut zookeeper = ZooKeeper::start().await.unwrap();
        zookeeper.back_up().unwrap();
        zookeeper.restart().await.unwrap();
        let locks = client(&zookeeper.url());
        let mut fence = None;
        // Enough changes for the control: an attempt that is repeated makes some more.
        for _ in 0..20 {
            let lock = acquired(&locks, &name("r"), secs(60)).await;
            fence = fence.max(Some(lock.token));
            assert!(release(&locks, &lock).await);
        }
        let fence = fence.unwrap();
        match is_emptied {
            true => zookeeper.restart_empty().await.unwrap(),
            false => zookeeper.restore().await.unwrap(),
        }
        let locks = client(&zookeeper.url());
        let restored = acquired(&locks, &name("r"), secs(60)).await;
        assert!(restored.token <= fence, "the control: changes count again");
        let reissued = locks.reissue(&name("r"), &restored.ownership, fence).await.unwrap();
        let reissued = reissued.unwrap();
        assert!(reissued > fence);
        assert!(release(&locks, &restored).await);
        // The offset outlives the container, and the server.
        zookeeper.restart().await.unwrap();
        let locks = client(&zookeeper.url());
        assert!(acquired(&locks, &name("r"), secs(60)).await.token > reissued);
    }
}

/// The storage rejects a token that is issued twice, because the holders differ.
#[tokio::test]
async fn lock_of_another_at_the_same_change_is_not_released() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let url = zookeeper.url();
    let acquired_first = async || acquired(&client(&url), &name("r"), secs(60)).await;
    let lost = acquired_first().await;
    zookeeper.restart_empty().await.unwrap();
    let next = acquired_first().await;
    assert_eq!(next.ownership.grant, lost.ownership.grant, "both have the same change");
    let locks = client(&url);
    assert!(!release(&locks, &lost).await);
    assert_eq!(locks.renew(&name("r"), &lost.ownership, secs(60)).await.unwrap(), None);
    assert_eq!(locks.reissue(&name("r"), &lost.ownership, lost.token).await.unwrap(), None);
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!((held.token, held.ownership), (next.token, next.ownership.clone()));
    assert!(release(&locks, &next).await, "the control");
}

/// So it is after a restore from a backup that has the session, and not the node.
#[tokio::test]
async fn end_of_a_session_without_a_node_releases_nothing() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (locks, direct) = (client(&zookeeper.url()), client(&zookeeper.url()));
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let node = own_node(&zookeeper).await;
    zookeeper.cli(&["delete", &node]).await.unwrap();
    let next = acquired(&direct, &name("r"), secs(60)).await;
    assert!(!release(&locks, &lock).await);
    let held = direct.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!(held.ownership, next.ownership);
    assert!(release(&direct, &next).await, "the control");
}

/// The backup was taken when another still held the lock, and the present owner waited.
#[tokio::test]
async fn owner_that_a_restore_made_a_waiter_again_does_not_own() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let locks = client(&zookeeper.url());
    let first = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    zookeeper.back_up().unwrap();
    zookeeper.restart().await.unwrap();
    let is_back = async || Ok(locks.status(&name("r")).await.is_ok());
    until_async(SOON, is_back).await.unwrap();
    assert!(release(&locks, &first).await);
    let second = held(attempt(&locks, &waiter, Order::Fair).await);
    let renewed = locks.renew(&name("r"), &second.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), Some(second.token), "the control");
    zookeeper.restore().await.unwrap();
    let r = name("r");
    let renewal = || locks.renew(&r, &second.ownership, secs(60));
    let is_answered = async || Ok(renewal().await.is_ok());
    until_async(SOON, is_answered).await.unwrap();
    assert_eq!(renewal().await.unwrap(), None);
    assert_eq!(locks.reissue(&name("r"), &second.ownership, second.token).await.unwrap(), None);
    assert_eq!(busy(attempt(&locks, &waiter, Order::Fair).await).ahead, Some(0));
}
