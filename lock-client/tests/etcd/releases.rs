//! Releases and deletions without an answer, beside other locks of their session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fence::{Holder, ResourceName};
use lock_client::{
    Moment, Order,
    backend::{Backend, BackendError},
    etcd,
};
use testbed::{
    Etcd, Proxy,
    proxy::{Rule, Verdict},
    wait::until_async,
};
use tokio::time::{sleep, timeout};

use super::{
    service::{DELETION, PUT, SOON, Slow, acquired, behind_proxy, client, held, secs},
    sessions::{is_held, kept, lease_of},
};
use crate::names::name;

/// Loses all requests with a text.
#[derive(Debug)]
struct LosesAll {
    text: &'static str,
    is_on: Arc<AtomicBool>,
}

impl Rule for LosesAll {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let is_lost = self.is_on.load(Ordering::SeqCst)
            && request.windows(self.text.len()).any(|window| window == self.text.as_bytes());
        if is_lost { Verdict::Drop } else { Verdict::Pass }
    }
}

/// A client that reaches etcd, except for its deletions while the flag is set.
async fn without_deletions() -> (Etcd, Proxy, etcd::Etcd, Arc<AtomicBool>) {
    let (etcd, proxy, _) = behind_proxy().await;
    let is_on = Arc::new(AtomicBool::new(true));
    proxy.add(LosesAll { text: DELETION, is_on: is_on.clone() });
    let locks = etcd::Etcd::open(&proxy.url("etcd")).unwrap();
    (etcd, proxy, locks, is_on)
}

/// The caller of the release has given up.
#[tokio::test]
async fn release_without_an_answer_is_repeated_until_it_has_one() {
    let (_etcd, _proxy, locks, is_on) = without_deletions().await;
    let first = acquired(&locks, &name("a"), secs(60)).await;
    let second = acquired(&locks, &name("b"), secs(60)).await;
    let holder = &second.ownership.holder;
    let released = locks.release(&name("b"), holder, Some(second.token)).await;
    assert!(matches!(released, Err(BackendError::Unavailable(_))), "{released:?}");
    assert!(is_held(&locks, &name("b")).await, "the control");
    is_on.store(false, Ordering::SeqCst);
    let until_free = until_async(SOON, async || Ok(!is_held(&locks, &name("b")).await));
    kept(&locks, &name("a"), &first, secs(60), until_free).await.unwrap();
}

/// The client repeats it for longer than what is left of the ttl.
#[tokio::test]
async fn release_without_an_answer_postpones_no_deadline() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    // A release is repeated for two minutes.
    let (locks, ttl) = (locks.answer_within(SOON), secs(12));
    let first = acquired(&locks, &name("a"), ttl).await;
    let second = acquired(&locks, &name("b"), ttl).await;
    let acquired_at = Moment::now();
    proxy.lose_request(DELETION);
    locks.release(&name("b"), &second.ownership.holder, None).await.unwrap_err();
    assert!(is_held(&locks, &name("b")).await, "the control");
    let until_free = until_async(SOON, async || Ok(!is_held(&locks, &name("b")).await));
    kept(&locks, &name("a"), &first, ttl, until_free).await.unwrap();
    let lasted = acquired_at.elapsed();
    assert!(lasted < 3 * ttl.as_duration(), "it doesn't outlast its ttl: {lasted:?}");
}

/// Its time ends while it waits for a connection, as it does if the machine is suspended. Nobody
/// would delete the key: the caller gives up, and another lock keeps the session alive.
#[tokio::test]
async fn attempt_whose_time_is_up_puts_no_key() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let (b, ttl) = (name("b"), secs(4));
    let first = acquired(&locks, &name("a"), ttl).await;
    let outlasts = async {
        // 1. Tries that hang have all connections that tries may have.
        let mut hanging = Vec::new();
        for number in 0..12 {
            let (locks, hold) = (locks.clone(), proxy.hold(PUT));
            let name = name(&format!("r{number}"));
            let trying = tokio::spawn(async move { acquired(&locks, &name, secs(60)).await });
            hanging.push((hold.caught().await.unwrap(), trying));
        }
        // 2. The attempt is forgotten.
        let deletions = proxy.requests(DELETION);
        let mut trying = {
            let (locks, b) = (locks.clone(), b.clone());
            tokio::spawn(async move {
                locks.try_acquire(&b, &Holder::random(), ttl, Order::Unordered).await
            })
        };
        until_async(SOON, async || Ok(proxy.requests(DELETION) > deletions))
            .await
            .expect("its time is up");
        assert!(!trying.is_finished(), "the control");
        // 3. It gets a connection. If it puts the key, that arrives late.
        let hold = proxy.hold(PUT);
        for (hangs, _) in hanging {
            hangs.deliver();
        }
        let tried = tokio::select! {
            tried = &mut trying => tried,
            late = hold.caught() => {
                let late = late.unwrap().cut();
                let tried = trying.await;
                late.deliver().await.unwrap();
                tried
            }
        };
        let tried = tried.unwrap();
        assert!(matches!(tried, Err(BackendError::Unavailable(_))), "{tried:?}");
    };
    kept(&locks, &name("a"), &first, ttl, outlasts).await;
    assert!(!is_held(&locks, &b).await);
}

#[tokio::test]
async fn session_is_given_up_if_a_lock_can_not_be_deleted_for_a_ttl() {
    let (etcd, _proxy, locks, _) = without_deletions().await;
    let ttl = secs(4);
    let first = acquired(&locks, &name("a"), ttl).await;
    let second = acquired(&locks, &name("b"), ttl).await;
    let session = lease_of(&etcd, "b").await;
    let released = locks.release(&name("b"), &second.ownership.holder, None).await;
    assert!(matches!(released, Err(BackendError::Unavailable(_))), "{released:?}");
    let until_free = until_async(SOON, async || Ok(!is_held(&locks, &name("b")).await));
    kept(&locks, &name("a"), &first, ttl, until_free).await.unwrap();
    // The other lock has moved, and is the same ownership's.
    assert_ne!(lease_of(&etcd, "a").await, session);
    let renewed = locks.renew(&name("a"), &first.ownership, ttl).await.unwrap();
    assert_eq!(renewed, Some(first.token));
}

/// A caller waits for less than that.
#[tokio::test]
async fn deletion_with_a_slow_answer_gives_no_session_up() {
    let (etcd, proxy, _) = behind_proxy().await;
    proxy.add(Slow(DELETION, Duration::from_secs(1)));
    let (locks, ttl) = (etcd::Etcd::open(&proxy.url("etcd")).unwrap(), secs(4));
    let first = acquired(&locks, &name("a"), ttl).await;
    let second = acquired(&locks, &name("b"), ttl).await;
    let session = lease_of(&etcd, "a").await;
    let released = locks.release(&name("b"), &second.ownership.holder, None).await;
    assert!(matches!(released, Err(BackendError::Unavailable(_))), "the control: {released:?}");
    kept(&locks, &name("a"), &first, ttl, sleep(3 * ttl.as_duration())).await;
    assert_eq!(lease_of(&etcd, "a").await, session);
}

/// A lost reply hid that it had moved to a session that others keep alive.
#[tokio::test]
async fn lock_that_has_moved_is_deleted_after_its_former_session_was_given_up() {
    let (etcd, proxy, locks, is_on) = without_deletions().await;
    let (ttl, longer) = (secs(4), secs(60));
    let first = acquired(&locks, &name("a"), ttl).await;
    let second = acquired(&locks, &name("b"), ttl).await;
    acquired(&locks, &name("c"), longer).await;
    let session = lease_of(&etcd, "a").await;
    proxy.lose_reply_to(PUT);
    locks.renew(&name("b"), &second.ownership, longer).await.unwrap_err();
    assert_eq!(lease_of(&etcd, "b").await, lease_of(&etcd, "c").await);
    locks.release(&name("b"), &second.ownership.holder, None).await.unwrap_err();
    let has_moved = async || Ok(lease_of(&etcd, "a").await != session);
    let until_given_up = until_async(SOON, has_moved);
    kept(&locks, &name("a"), &first, ttl, until_given_up).await.unwrap();
    assert!(is_held(&locks, &name("b")).await, "the control");
    is_on.store(false, Ordering::SeqCst);
    until_async(SOON, async || Ok(!is_held(&locks, &name("b")).await)).await.unwrap();
}

/// Many clients that have lost etcd at one moment must not ask it often, nor at the same moments.
#[tokio::test]
async fn deletion_without_an_answer_is_repeated_after_longer_and_longer_pauses() {
    let (_etcd, proxy, locks, _) = without_deletions().await;
    let lock = acquired(&locks, &name("a"), secs(60)).await;
    locks.release(&name("a"), &lock.ownership.holder, None).await.unwrap_err();
    // It is deleted from here on. At first, the pauses are short.
    timeout(SOON, locks.wait_for_releases()).await.unwrap();
    let before = proxy.requests(DELETION);
    assert!(before > 2, "the control: {before} deletions");
    sleep(Duration::from_secs(4)).await;
    let repeated = proxy.requests(DELETION) - before;
    assert!(repeated <= 9, "{repeated} deletions in 4 seconds");
}

/// The process may end then.
#[tokio::test]
async fn releases_without_an_answer_are_waited_for() {
    let (_etcd, _proxy, locks, is_on) = without_deletions().await;
    let lock = acquired(&locks, &name("a"), secs(60)).await;
    locks.release(&name("a"), &lock.ownership.holder, None).await.unwrap_err();
    // While etcd does not answer, the wait ends.
    timeout(SOON, locks.wait_for_releases()).await.unwrap();
    assert!(is_held(&locks, &name("a")).await, "the control");
    is_on.store(false, Ordering::SeqCst);
    timeout(SOON, locks.wait_for_releases()).await.unwrap();
    assert!(!is_held(&locks, &name("a")).await);
    // A lock that is held is not waited for.
    acquired(&locks, &name("b"), secs(60)).await;
    timeout(SOON, locks.wait_for_releases()).await.unwrap();
    assert!(is_held(&locks, &name("b")).await);
}

/// A release whose caller gives up. Its request is lost.
async fn release_given_up(locks: &etcd::Etcd, proxy: &Proxy, lock: &ResourceName, holder: &Holder) {
    let hold = proxy.hold(DELETION);
    tokio::select! {
        released = locks.release(lock, holder, None) => panic!("the control: {released:?}"),
        late = hold.caught() => drop(late.unwrap().cut()),
    }
}

/// The renewal has succeeded, and its answer arrives later.
#[tokio::test]
async fn renewal_that_ends_after_a_release_postpones_no_deletion() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(Duration::from_secs(2));
    let (r, ttl) = (name("r"), secs(300));
    let lock = acquired(&locks, &r, ttl).await;
    let hold = proxy.hold("/v3/kv/txn");
    let releases = async {
        let read = hold.caught().await.unwrap();
        release_given_up(&locks, &proxy, &r, &lock.ownership.holder).await;
        read.deliver();
    };
    let (renewed, ()) = tokio::join!(locks.renew(&r, &lock.ownership, ttl), releases);
    assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{renewed:?}");
    assert!(is_held(&locks, &r).await, "the control");
    until_async(SOON, async || Ok(!is_held(&locks, &r).await)).await.expect("it is deleted");
}

/// The release before it had no answer.
#[tokio::test]
async fn holder_that_tries_again_after_a_release_keeps_its_lock() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let (r, ttl) = (name("r"), secs(60));
    let holder = acquired(&locks, &r, ttl).await.ownership.holder;
    release_given_up(&locks, &proxy, &r, &holder).await;
    let again = held(locks.try_acquire(&r, &holder, ttl, Order::Unordered).await);
    timeout(SOON, locks.wait_for_releases()).await.unwrap();
    assert_eq!(locks.renew(&r, &again.ownership, ttl).await.unwrap(), Some(again.token));
}

/// The renewal has succeeded, and its answer arrives later.
#[tokio::test]
async fn renewal_that_ends_after_a_detach_deletes_no_lock() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let other = client(&etcd.url());
    let ttl = secs(3);
    let detachable = async |locks: &etcd::Etcd, lock| {
        let (lock, holder) = (name(lock), Holder::random());
        held(locks.try_acquire_detachable(&lock, &holder, ttl, Order::Unordered).await)
    };
    // The first renewal of a lock that another process has acquired adopts it.
    for (own, lock) in [(true, "acquired"), (false, "adopted")] {
        let r = name(lock);
        let lock = detachable(if own { &locks } else { &other }, lock).await;
        other.detach(&lock.ownership, lock.token);
        let hold = proxy.hold("/v3/kv/txn");
        let detaches = async {
            let read = hold.caught().await.unwrap();
            locks.detach(&lock.ownership, lock.token);
            read.deliver();
        };
        let (renewed, ()) = tokio::join!(locks.renew(&r, &lock.ownership, ttl), detaches);
        assert!(matches!(renewed, Err(BackendError::Unavailable(_))), "{own} {renewed:?}");
        kept(&other, &r, &lock, ttl, sleep(2 * ttl.as_duration())).await;
    }
}
