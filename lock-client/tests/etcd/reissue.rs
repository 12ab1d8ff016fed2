//! Tokens that are reissued, also after the cluster was restored from a snapshot.

use fence::{Holder, Token};
use lock_client::{Order, backend::Backend};
use testbed::Etcd;

use super::service::{acquired, attempt, busy, client, held, release, secs};
use crate::names::name;

fn above(token: Token, by: u64) -> Token {
    Token::new(token.as_u64() + by).unwrap()
}

#[tokio::test]
async fn reissued_token_is_above_all_that_were_given() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let mut last = lock.token;
    for at_least in [lock.token, above(lock.token, 1_000), lock.token] {
        let reissued = locks.reissue(&name("r"), &lock.ownership, at_least).await.unwrap();
        let reissued = reissued.expect("it is the owner's");
        assert!(reissued > at_least && reissued > last, "{reissued}, above {at_least} and {last}");
        last = reissued;
    }
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(last));
    let again = held(attempt(&locks, &lock.ownership.holder, Order::Unordered).await);
    assert_eq!((again.token, again.ownership), (last, lock.ownership.clone()));
    let status = locks.status(&name("r")).await.unwrap();
    assert_eq!((status.held.unwrap().token, status.last_token), (last, Some(last.as_u64())));
    assert!(release(&locks, &lock).await);
    assert!(acquired(&locks, &name("r"), secs(60)).await.token > last);
}

#[tokio::test]
async fn racing_reissues_return_different_tokens() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let (r, own) = (name("r"), &lock.ownership);
    let reissue = || locks.reissue(&r, own, lock.token);
    let (a, b, c) = tokio::join!(reissue(), reissue(), reissue());
    let mut tokens = [a, b, c].map(|token| token.unwrap().expect("it is the owner's"));
    tokens.sort_unstable();
    assert!(lock.token < tokens[0] && tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
}

/// The owner reissues while a waiter is queued already.
#[tokio::test]
async fn waiter_that_queued_before_a_reissue_gets_a_higher_token() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let first = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let at_queueing = locks.status(&name("r")).await.unwrap().last_token.unwrap();
    let offset_at_queueing = at_queueing - first.ownership.grant.as_u64();
    let far = above(first.token, 1_000);
    let reissued = locks.reissue(&name("r"), &first.ownership, far).await.unwrap().unwrap();
    assert!(release(&locks, &first).await);
    let next = held(attempt(&locks, &waiter, Order::Fair).await);
    assert!(next.token > reissued, "{} follows {reissued}", next.token);
    // The control: the offset that was read at queueing gives a token that the storage refuses.
    let wrong = next.ownership.grant.as_u64() + offset_at_queueing;
    assert!(wrong < reissued.as_u64(), "{wrong} would follow {reissued}");
}

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
