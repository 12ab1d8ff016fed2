//! Tokens that are reissued, also after the cluster was restored from a snapshot.

use fence::Holder;
use lock_client::{Order, backend::Backend};
use testbed::Etcd;

use super::service::{acquired, attempt, busy, client, held, release, secs};
use crate::names::name;

#[tokio::test]
async fn restored_cluster_continues_above_the_fence() {
    let mut etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let snapshot = etcd.save_snapshot().await.unwrap();
    let mut fence = None;
    for _ in 0..5 {
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        fence = fence.max(Some(lock.token));
        assert!(release(&locks, &lock).await);
    }
    let fence = fence.unwrap();
    etcd.restore(&snapshot).await.unwrap();
    let restored = acquired(&locks, &name("r"), secs(60)).await;
    assert!(restored.token <= fence, "the control: revisions count again");
    let reissued = locks.reissue(&name("r"), &restored.ownership, fence).await.unwrap().unwrap();
    assert!(reissued > fence);
    assert!(release(&locks, &restored).await);
    assert!(acquired(&locks, &name("r"), secs(60)).await.token > reissued);
}

#[tokio::test]
async fn lock_of_another_at_the_same_revision_is_not_released() {
    let mut etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let snapshot = etcd.save_snapshot().await.unwrap();
    let lost = acquired(&locks, &name("r"), secs(60)).await;
    etcd.restore(&snapshot).await.unwrap();
    let next = acquired(&locks, &name("r"), secs(60)).await;
    assert_eq!(next.ownership.grant, lost.ownership.grant, "both have the same revision");
    assert!(!release(&locks, &lost).await);
    assert_eq!(locks.renew(&name("r"), &lost.ownership, secs(60)).await.unwrap(), None);
    assert_eq!(locks.reissue(&name("r"), &lost.ownership, lost.token).await.unwrap(), None);
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!((held.token, held.ownership), (next.token, next.ownership.clone()));
    assert!(release(&locks, &next).await, "the control");
}

/// The snapshot was taken when another still held the lock, and the present owner waited.
#[tokio::test]
async fn owner_that_a_restore_made_a_waiter_again_does_not_own() {
    let mut etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let first = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let snapshot = etcd.save_snapshot().await.unwrap();
    assert!(release(&locks, &first).await);
    let second = held(attempt(&locks, &waiter, Order::Fair).await);
    let renewal = async || locks.renew(&name("r"), &second.ownership, secs(60)).await;
    assert_eq!(renewal().await.unwrap(), Some(second.token), "the control");
    etcd.restore(&snapshot).await.unwrap();
    assert_eq!(renewal().await.unwrap(), None);
    assert_eq!(locks.reissue(&name("r"), &second.ownership, second.token).await.unwrap(), None);
    assert_eq!(busy(attempt(&locks, &waiter, Order::Fair).await).ahead, Some(0));
}
