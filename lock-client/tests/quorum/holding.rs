//! Tokens, and the locks that they belong to.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Locks, Moment, Order, Terms,
    backend::{Backend, Ownership},
};

use super::service::{Service, acquired, attempt, busy, held, release, secs, until_free};
use crate::names::name;

async fn token_grows_over_release_expiry_and_restart<S: Service>() {
    let mut service = S::start().await;
    let locks = S::client(&service.url());
    let mut tokens = Vec::new();
    let released = acquired(&locks, &name("r"), secs(60)).await;
    assert!(release(&locks, &released).await);
    let expired = acquired(&locks, &name("r"), secs(1)).await;
    until_free(&locks).await;
    let kept = acquired(&locks, &name("r"), secs(60)).await;
    service.restart().await.unwrap();
    let locks = S::client(&service.url());
    let renewed = locks.renew(&name("r"), &kept.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(kept.token), "a restart keeps the lock");
    assert!(release(&locks, &kept).await);
    let last = acquired(&locks, &name("r"), secs(60)).await;
    tokens.extend([released.token, expired.token, kept.token, last.token]);
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    assert_eq!(last.ownership.grant, last.token);
}

async fn expired_lock_is_not_renewed<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let expired = acquired(&locks, &name("r"), secs(1)).await;
    until_free(&locks).await;
    let renewal = async || locks.renew(&name("r"), &expired.ownership, secs(60)).await;
    assert_eq!(renewal().await.unwrap(), None);
    let next = acquired(&locks, &name("r"), secs(60)).await;
    assert_eq!(renewal().await.unwrap(), None);
    let reissued = locks.reissue(&name("r"), &expired.ownership, next.token).await;
    assert_eq!(reissued.unwrap(), None);
    assert!(!release(&locks, &expired).await);
    let renewed = locks.renew(&name("r"), &next.ownership, secs(60)).await;
    assert_eq!(renewed.unwrap(), Some(next.token), "the control");
}

async fn only_the_holder_releases<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let other = Holder::random();
    busy(attempt(&locks, &other, Order::Unordered).await);
    assert!(!locks.release(&name("r"), &other, None).await.unwrap());
    // With a grant that is right, and a holder that is not.
    let foreign = Ownership { holder: other, grant: lock.ownership.grant };
    assert_eq!(locks.renew(&name("r"), &foreign, secs(60)).await.unwrap(), None);
    let reissued = locks.reissue(&name("r"), &foreign, lock.token).await.unwrap();
    assert_eq!(reissued, None);
    // With a holder that is right, and a grant that is not.
    let earlier = Ownership { grant: "1".parse().unwrap(), ..lock.ownership.clone() };
    assert_eq!(locks.renew(&name("r"), &earlier, secs(60)).await.unwrap(), None);
    assert!(release(&locks, &lock).await);
    assert!(!release(&locks, &lock).await, "it is free");
}

/// The last renewal is for the rest of the time, which is too short for a session.
async fn lease_ends_with_its_max_hold_and_no_earlier<S: Service>() {
    let service = S::start().await;
    let locks = Locks::new(S::client(&service.url()));
    let max_hold = Duration::from_millis(7_500);
    let begun = Moment::now();
    let terms = Terms::new(secs(6)).max_hold(max_hold);
    let lease = locks.acquire(&name("r"), terms).await.unwrap();
    lease.lost().await;
    let lasted = begun.elapsed();
    // The deadline leaves out the drift.
    assert!(lasted > Duration::from_millis(7_300) && lasted < 2 * max_hold, "{lasted:?}");
}

/// Its session lives on until another process adopts the lock, or for a ttl. The client of the lock is no
/// other process.
async fn detachable_lock_ends_with_its_last_renewal<S: Service>() {
    let service = S::start().await;
    let (locks, r, long) = (S::client(&service.url()), name("r"), secs(40));
    let holder = Holder::random();
    let lock = held(locks.try_acquire_detachable(&r, &holder, long, Order::Unordered).await);
    // The last renewal before the end of `max_hold`.
    let renewed = locks.renew(&r, &lock.ownership, secs(1)).await.unwrap();
    assert_eq!(renewed, Some(lock.token));
    let begun = Moment::now();
    until_free(&locks).await;
    assert!(begun.elapsed() < long.as_duration() / 2, "{:?}", begun.elapsed());
}

test_each_service! {
    token_grows_over_release_expiry_and_restart,
    expired_lock_is_not_renewed,
    only_the_holder_releases,
    lease_ends_with_its_max_hold_and_no_earlier,
    detachable_lock_ends_with_its_last_renewal,
}
