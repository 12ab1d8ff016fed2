//! Locks of one client that share a lease.

use std::time::Duration;

use fence::{Holder, ResourceName};
use lock_client::{
    Order,
    backend::{Attempt, Backend, BackendError},
    etcd,
};
use testbed::{Etcd, Proxy, wait::until_async};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::service::{SOON, acquired, client, own_leases, secs};
use crate::names::name;

/// Returns the lease of a lock, as `etcdctl` takes it.
async fn lease_of(etcd: &Etcd, lock: &str) -> String {
    let prefix = format!("fenced/{lock}/queue/");
    let json = etcd.etcdctl(&["get", "--prefix", &prefix, "--write-out=json"]).await.unwrap();
    let lease = json.split("\"lease\":").nth(1).expect("the key has a lease");
    let id: String = lease.chars().take_while(char::is_ascii_digit).collect();
    format!("{:016x}", id.parse::<i64>().unwrap())
}

async fn is_held(locks: &etcd::Etcd, name: &ResourceName) -> bool {
    locks.status(name).await.unwrap().held.is_some()
}

/// Acquires two locks on one lease, for a time that no test outlasts.
async fn two_locks(etcd: &Etcd, locks: &etcd::Etcd) -> [super::service::Held; 2] {
    loop {
        let first = acquired(locks, &name("a"), secs(60)).await;
        let second = acquired(locks, &name("b"), secs(60)).await;
        if lease_of(etcd, "a").await == lease_of(etcd, "b").await {
            return [first, second];
        }
        // They were too far apart.
        for (lock, held) in [("a", first), ("b", second)] {
            let holder = &held.ownership.holder;
            assert!(locks.release(&name(lock), holder, Some(held.token)).await.unwrap());
        }
    }
}

#[tokio::test]
async fn release_of_a_lock_ends_no_other_on_its_lease() {
    let etcd = Etcd::start().await.unwrap();
    let (locks, operator) = (client(&etcd.url()), client(&etcd.url()));
    for token_is_known in [true, false] {
        let [first, second] = two_locks(&etcd, &locks).await;
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
    two_locks(&etcd, &locks).await;
    etcd.etcdctl(&["lease", "revoke", &lease_of(&etcd, "a").await]).await.unwrap();
    assert!(!is_held(&locks, &name("b")).await);
}

#[tokio::test]
async fn renewal_of_a_lock_keeps_no_other_on_its_lease() {
    let etcd = Etcd::start().await.unwrap();
    let locks = client(&etcd.url());
    let [first, _] = two_locks(&etcd, &locks).await;
    let shared = lease_of(&etcd, "b").await;
    let renewed = locks.renew(&name("a"), &first.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(first.token));
    assert_eq!(lease_of(&etcd, "b").await, shared);
    assert_ne!(lease_of(&etcd, "a").await, shared);
    assert_eq!(own_leases(&etcd).await, 1);
    // The end of the shared lease ends only the other.
    etcd.etcdctl(&["lease", "revoke", &shared]).await.unwrap();
    assert!(is_held(&locks, &name("a")).await);
    assert!(!is_held(&locks, &name("b")).await);
    // A renewal of one lock does not prolong the other.
    let (ttl, kept, left) = (secs(5), name("c"), name("d"));
    let lock = acquired(&locks, &kept, ttl).await;
    acquired(&locks, &left, ttl).await;
    let expired = async || {
        let renewed = locks.renew(&kept, &lock.ownership, ttl).await?;
        anyhow::ensure!(renewed == Some(lock.token), "{renewed:?}");
        Ok(!is_held(&locks, &left).await)
    };
    until_async(SOON, expired).await.unwrap();
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
async fn attempts_at_one_time_share_a_lease() {
    let etcd = Etcd::start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    acquire_all(&client(&proxy.url("etcd"))).join_all().await;
    // The first lease is for the attempts that began before it was asked for.
    let grants = proxy.requests("/v3/lease/grant");
    assert!(grants <= 2, "{grants}");
}

/// If each task closed it once for each attempt, there would be thousands of requests.
#[tokio::test]
async fn lease_of_many_attempts_without_an_answer_is_closed_once() {
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
    let closes = proxy.requests("/v3/kv/put");
    assert!((1..TASKS).contains(&closes), "{closes}");
}
