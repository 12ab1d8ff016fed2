//! Locks of one client, which share a session.

use std::time::Duration;

use fence::{Holder, ResourceName};
use futures_util::future::join_all;
use lock_client::{
    Locks, Moment, Order, Released, Terms, Ttl,
    backend::{Attempt, Backend, BackendError},
    etcd,
};
use testbed::{Etcd, Proxy, wait::until_async};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    errors::fill,
    service::{
        SOON, acquired, behind_proxy, busy, client, held, own_leases, renews, secs, while_it_hangs,
    },
};
use crate::names::name;

/// Returns the lease of a lock, as `etcdctl` takes it.
pub(super) async fn lease_of(etcd: &Etcd, lock: &str) -> String {
    let prefix = format!("fenced/{lock}/queue/");
    let json = etcd.etcdctl(&["get", "--prefix", &prefix, "--write-out=json"]).await.unwrap();
    let lease = json.split("\"lease\":").nth(1).expect("the key has a lease");
    let id: String = lease.chars().take_while(char::is_ascii_digit).collect();
    format!("{:016x}", id.parse::<i64>().unwrap())
}

pub(super) async fn is_held(locks: &etcd::Etcd, name: &ResourceName) -> bool {
    locks.status(name).await.unwrap().held.is_some()
}

/// Acquires two locks on one session.
async fn two_locks(locks: &etcd::Etcd) -> [super::service::Held; 2] {
    let first = acquired(locks, &name("a"), secs(60)).await;
    [first, acquired(locks, &name("b"), secs(60)).await]
}

#[tokio::test]
async fn release_of_a_lock_ends_no_other_of_its_session() {
    let etcd = Etcd::start().await.unwrap();
    let (locks, operator) = (client(&etcd.url()), client(&etcd.url()));
    for token_is_known in [true, false] {
        let [first, second] = two_locks(&locks).await;
        let token = token_is_known.then_some(first.token);
        for client in [&operator, &locks] {
            // The second release arrives late.
            client.release(&name("a"), &first.ownership.holder, token).await.unwrap();
            assert!(!is_held(&locks, &name("a")).await);
            assert!(is_held(&locks, &name("b")).await);
        }
        let holder = &second.ownership.holder;
        assert!(locks.release(&name("b"), holder, Some(second.token)).await.unwrap());
    }
    // The control: if a release revoked the lease, it would end the other lock.
    two_locks(&locks).await;
    etcd.etcdctl(&["lease", "revoke", &lease_of(&etcd, "a").await]).await.unwrap();
    assert!(!is_held(&locks, &name("b")).await);
}

/// Keeps a lock by renewals until the body ends, and renews it once more.
pub(super) async fn kept<T>(
    locks: &etcd::Etcd,
    lock: &ResourceName,
    held: &super::service::Held,
    ttl: Ttl,
    body: impl Future<Output = T>,
) -> T {
    // A request may be lost meanwhile, but no lock is.
    let renew = async || {
        let until = Moment::now() + ttl.as_duration();
        loop {
            match locks.renew(lock, &held.ownership, ttl).await {
                Ok(renewed) => return assert_eq!(renewed, Some(held.token), "it is kept"),
                Err(BackendError::Unavailable(_)) if !until.has_passed() => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let renewing = async {
        loop {
            renew().await;
            sleep(Duration::from_millis(200)).await;
        }
    };
    let done = tokio::select! {
        never = renewing => never,
        done = body => done,
    };
    renew().await;
    done
}

/// Its session lives on, so its client deletes it.
#[tokio::test]
async fn lock_that_nobody_renews_is_free_when_its_ttl_ends() {
    let etcd = Etcd::start().await.unwrap();
    let (locks, ttl) = (client(&etcd.url()), secs(5));
    let first = acquired(&locks, &name("a"), ttl).await;
    acquired(&locks, &name("b"), ttl).await;
    let (acquired_at, session) = (Moment::now(), lease_of(&etcd, "b").await);
    assert_eq!(lease_of(&etcd, "a").await, session);
    let until_free = until_async(SOON, async || Ok(!is_held(&locks, &name("b")).await));
    kept(&locks, &name("a"), &first, ttl, until_free).await.unwrap();
    let lasted = acquired_at.elapsed();
    assert!(lasted >= Duration::from_millis(4_500), "not before its ttl: {lasted:?}");
    assert!(lasted < Duration::from_secs(8), "it doesn't outlast its ttl: {lasted:?}");
    // The control: the session lives, with the other lock.
    assert_eq!(lease_of(&etcd, "a").await, session);
}

/// A session that can't be sealed holds up no deletion of another lock, and costs no held lock.
#[tokio::test]
async fn etcd_without_space_lets_locks_end() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes=1000000"]).await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let (locks, ttl) = (client(&proxy.url("etcd")), secs(8));
    let first = acquired(&locks, &name("a"), ttl).await;
    proxy.lose_request("request_put");
    let (other, holder) = (name("x"), Holder::random());
    locks.try_acquire(&other, &holder, ttl, Order::Unordered).await.unwrap_err();
    acquired(&locks, &name("b"), ttl).await;
    fill(&etcd).await;
    assert!(is_held(&locks, &name("b")).await, "the control");
    let until_free = until_async(SOON, async || Ok(!is_held(&locks, &name("b")).await));
    kept(&locks, &name("a"), &first, ttl, until_free).await.unwrap();
    kept(&locks, &name("a"), &first, ttl, sleep(3 * ttl.as_duration())).await;
}

/// Its attempt had no answer, nor had the release that seals the session.
#[tokio::test]
async fn lock_stays_on_its_session_when_others_have_no_answer() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let (ttl, longer) = (secs(60), secs(90));
    let first = acquired(&locks, &name("a"), ttl).await;
    let session = lease_of(&etcd, "a").await;
    // 1. An attempt without an answer, whose release has no answer either.
    let (other, holder) = (name("b"), Holder::random());
    proxy.lose_request("request_put");
    locks.try_acquire(&other, &holder, ttl, Order::Unordered).await.unwrap_err();
    proxy.lose_request("/v3/kv/put");
    locks.release(&other, &holder, None).await.unwrap_err();
    assert!(!locks.release(&other, &holder, None).await.unwrap());
    let renewed = locks.renew(&name("a"), &first.ownership, ttl).await.unwrap();
    assert_eq!(renewed, Some(first.token));
    assert_eq!(lease_of(&etcd, "a").await, session);
    // The control: a new lock gets a new session, because this one is sealed.
    let second = acquired(&locks, &name("b"), ttl).await;
    assert_ne!(lease_of(&etcd, "b").await, session);
    // 2. A move without an answer.
    let third = acquired(&locks, &name("c"), longer).await;
    let session = lease_of(&etcd, "c").await;
    proxy.lose_request("request_put");
    locks.renew(&name("b"), &second.ownership, longer).await.unwrap_err();
    for (lock, held) in [("b", &second), ("c", &third)] {
        let renewed = locks.renew(&name(lock), &held.ownership, longer).await.unwrap();
        assert_eq!(renewed, Some(held.token));
        assert_eq!(lease_of(&etcd, lock).await, session);
    }
}

/// Two processes never share a session.
#[tokio::test]
async fn detachable_lock_has_a_lease_of_its_own() {
    let etcd = Etcd::start().await.unwrap();
    let locks = Locks::new(client(&etcd.url()));
    let kept = locks.acquire(&name("a"), secs(60)).await.unwrap();
    for terms in [Terms::new(secs(60)), Terms::new(secs(60)).fair()] {
        let left = locks.acquire(&name("b"), terms.detachable()).await.unwrap();
        let own = lease_of(&etcd, "b").await;
        assert_ne!(own, lease_of(&etcd, "a").await);
        assert_eq!(own_leases(&etcd).await, 1);
        let token = left.token().unwrap();
        let detached = left.detach().unwrap();
        let other = Locks::new(client(&etcd.url()));
        let adopted = other.adopt(detached, Terms::new(secs(60))).await.unwrap();
        assert_eq!(adopted.token(), Ok(token));
        assert_eq!(lease_of(&etcd, "b").await, own);
        assert_eq!(adopted.release().await.unwrap(), Released::Released);
        assert_eq!(own_leases(&etcd).await, 0, "the lease ends with its lock");
    }
    // The control: the end of a session ends all its locks, and no other.
    let left = locks.acquire(&name("b"), Terms::new(secs(60)).detachable()).await.unwrap();
    etcd.etcdctl(&["lease", "revoke", &lease_of(&etcd, "a").await]).await.unwrap();
    kept.renew().await.unwrap_err();
    left.renew().await.unwrap();
}

/// It has waited on the session of its client's locks, and nothing notifies it of its turn.
#[tokio::test]
async fn detachable_waiter_has_a_lease_of_its_own_once_it_is_the_owner() {
    let etcd = Etcd::start().await.unwrap();
    let (locks, other) = (client(&etcd.url()), client(&etcd.url()));
    let (b, ttl) = (name("b"), secs(10));
    acquired(&locks, &name("a"), ttl).await;
    // The control: another lock stays on the session.
    for is_detachable in [false, true] {
        let holder = Holder::random();
        let attempt = async || match is_detachable {
            true => locks.try_acquire_detachable(&b, &holder, ttl, Order::Fair).await,
            false => locks.try_acquire(&b, &holder, ttl, Order::Fair).await,
        };
        let first = acquired(&other, &b, ttl).await;
        busy(attempt().await);
        assert!(other.release(&b, &first.ownership.holder, None).await.unwrap());
        let lock = held(attempt().await);
        let is_shared = lease_of(&etcd, "b").await == lease_of(&etcd, "a").await;
        assert_eq!(is_shared, !is_detachable);
        assert_eq!(own_leases(&etcd).await, usize::from(is_detachable));
        assert!(locks.release(&b, &holder, Some(lock.token)).await.unwrap());
    }
}

/// Another client acquires the lock between the attempt's read and its put.
#[tokio::test]
async fn detachable_attempt_that_fails_leaves_no_lease() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let other = client(&etcd.url());
    let (r, holder) = (name("r"), Holder::random());
    let hold = proxy.hold("request_put");
    let loses = async {
        let late = hold.caught().await.unwrap();
        acquired(&other, &r, secs(60)).await;
        assert_eq!(own_leases(&etcd).await, 1, "the control");
        late.deliver();
    };
    let attempt = locks.try_acquire_detachable(&r, &holder, secs(60), Order::Unordered);
    let (tried, ()) = tokio::join!(attempt, loses);
    busy(tried);
    assert_eq!(own_leases(&etcd).await, 0);
}

/// The number of tasks that acquire a lock each.
const TASKS: usize = 50;

/// Acquires a lock in each of the tasks, which repeat attempts without an answer.
fn acquire_all(locks: &etcd::Etcd) -> JoinSet<()> {
    let acquire = |number| {
        let (locks, name, holder) = (locks.clone(), name(&format!("r{number}")), Holder::random());
        async move {
            loop {
                match locks.try_acquire(&name, &holder, secs(60), Order::Unordered).await {
                    Ok(Attempt::Granted { .. }) => return,
                    Err(BackendError::Unavailable(_)) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    (0..TASKS).map(acquire).collect()
}

#[tokio::test]
async fn attempts_at_one_time_share_a_session() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    acquire_all(&locks).join_all().await;
    assert_eq!(proxy.requests("/v3/lease/grant"), 1);
}

/// A try for one more ttl waits for its session, and a renewal for another needs a new session, too.
#[tokio::test]
async fn lock_that_moves_waits_for_no_session_of_a_try() {
    let (_etcd, proxy, locks) = behind_proxy().await;
    let locks = locks.answer_within(SOON);
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let other = name("other");
    let (trying, renewing) = (acquired(&locks, &other, secs(45)), renews(&locks, "r", &lock, 90));
    while_it_hangs(&proxy, "\"TTL\":45", trying, renewing).await;
}

/// If each task sealed the session for each attempt, there would be thousands of requests.
#[tokio::test]
async fn many_attempts_without_an_answer_seal_a_session_once() {
    let mut etcd = Etcd::start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let locks = etcd::Etcd::open(&proxy.url("etcd")).unwrap();
    for lock in ["a", "b"] {
        acquired(&locks, &name(lock), secs(60)).await;
    }
    etcd.process(0).pause().await.unwrap();
    let tasks = acquire_all(&locks);
    sleep(Duration::from_millis(900)).await;
    etcd.process(0).resume().unwrap();
    timeout(SOON, tasks.join_all()).await.expect("all acquire");
    let seals = proxy.requests("/v3/kv/put");
    assert!((1..TASKS).contains(&seals), "{seals}");
}

/// Each alone would be a keep-alive and a read.
#[tokio::test]
async fn renewals_at_one_time_share_their_requests() {
    let (etcd, proxy, locks) = behind_proxy().await;
    let mut held = Vec::new();
    for number in 0..120 {
        let name = name(&format!("r{number}"));
        let lock = acquired(&locks, &name, secs(60)).await;
        held.push((name, lock));
    }
    let requests = proxy.requests("POST /v3/");
    let renewals = held.iter().map(|(name, lock)| locks.renew(name, &lock.ownership, secs(60)));
    for (renewed, (_, lock)) in join_all(renewals).await.into_iter().zip(&held) {
        assert_eq!(renewed.unwrap(), Some(lock.token));
    }
    let taken = proxy.requests("POST /v3/") - requests;
    // The first round may have begun before all were asked for.
    assert!((4..=8).contains(&taken), "{taken} requests for {} renewals", held.len());
    // The control: what one renewal finds is not another's.
    etcd.etcdctl(&["del", "--prefix", "fenced/r7/queue/"]).await.unwrap();
    let renewals = held.iter().map(|(name, lock)| locks.renew(name, &lock.ownership, secs(60)));
    for (renewed, (name, lock)) in join_all(renewals).await.into_iter().zip(&held) {
        assert_eq!(renewed.unwrap().is_some(), name.as_str() != "r7", "{name} {lock:?}");
    }
}
