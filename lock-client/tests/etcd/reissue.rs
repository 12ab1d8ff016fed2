//! Tokens that are reissued, also after the cluster was restored from a snapshot, or lost all its
//! data.

use fence::Holder;
use lock_client::{Order, backend::Backend};
use testbed::Etcd;

use super::service::{acquired, attempt, busy, client, held, release, secs};
use crate::names::name;

/// Issues some tokens, loses what came after a snapshot, or everything, and heals.
async fn continues_above_the_fence(mut etcd: Etcd, is_emptied: bool) {
    let locks = client(&etcd.url());
    let snapshot = etcd.save_snapshot().await.unwrap();
    let mut fence = None;
    for _ in 0..5 {
        let lock = acquired(&locks, &name("r"), secs(60)).await;
        fence = fence.max(Some(lock.token));
        assert!(release(&locks, &lock).await);
    }
    let fence = fence.unwrap();
    match is_emptied {
        true => etcd.restart_empty().await.unwrap(),
        false => etcd.restore(&snapshot).await.unwrap(),
    }
    let next = acquired(&locks, &name("r"), secs(60)).await;
    assert!(next.token <= fence, "the control: revisions count again");
    let reissued = locks.reissue(&name("r"), &next.ownership, fence).await.unwrap().unwrap();
    assert!(reissued > fence);
    assert!(release(&locks, &next).await);
    etcd.restart().await.unwrap();
    assert!(acquired(&locks, &name("r"), secs(60)).await.token > reissued);
}

#[tokio::test]
async fn restored_cluster_continues_above_the_fence() {
    continues_above_the_fence(Etcd::start().await.unwrap(), false).await;
}

/// The client's connections and its shared lease are those of a cluster that is no more.
#[tokio::test]
async fn cluster_that_lost_its_data_continues_above_the_fence() {
    continues_above_the_fence(Etcd::start().await.unwrap(), true).await;
    continues_above_the_fence(Etcd::start_cluster().await.unwrap(), true).await;
}

/// The owner's lease is lost: its key is gone, or the next owner's is of the same revision.
#[tokio::test]
async fn lock_of_another_after_the_loss_of_all_data_is_not_released() {
    let mut etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lost = acquired(&locks, &name("r"), secs(60)).await;
    etcd.restart_empty().await.unwrap();
    let other = client(&etcd.url());
    let next = acquired(&other, &name("r"), secs(60)).await;
    assert_eq!(next.ownership.grant, lost.ownership.grant, "both have the same revision");
    assert_eq!(locks.renew(&name("r"), &lost.ownership, secs(60)).await.unwrap(), None);
    assert_eq!(locks.reissue(&name("r"), &lost.ownership, lost.token).await.unwrap(), None);
    assert!(!release(&locks, &lost).await);
    let held = other.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!((held.token, held.ownership), (next.token, next.ownership.clone()));
    assert!(release(&other, &next).await, "the control");
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
