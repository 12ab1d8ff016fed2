//! Waiting for a lock that another client holds.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testbed::wait::until_async;

use super::cluster::{cluster_of, locks_of};
use crate::{
    lock_service::{channels, lasting, ttl},
    names::name,
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Less than the 5 seconds after which waiters try by themselves.
const NOTIFIED: Duration = Duration::from_secs(2);

#[tokio::test]
async fn waiter_is_notified_of_the_release() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    let waiting = tokio::spawn({
        let other = locks_of(&cluster);
        async move { other.acquire(&name("r"), ttl(600_000)).await }
    });
    for node in cluster.nodes() {
        until_async(PATIENCE, async || Ok(channels(node).await? == 1)).await.unwrap();
    }
    // The waiter has tried once more since it subscribed, or is about to.
    let issued = lease.token().unwrap();
    let released = Instant::now();
    lease.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    let took = released.elapsed();
    assert!(took < NOTIFIED, "the waiter tried by itself: {took:?}");
    assert!(next.token().unwrap() > issued);
    next.release().await.unwrap();
}

#[tokio::test]
async fn waiter_is_notified_although_a_node_is_down() {
    let mut cluster = cluster_of(3).await;
    cluster.nodes_mut()[2].process().kill().unwrap();
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    let waiting = tokio::spawn({
        let other = locks_of(&cluster);
        async move { other.acquire(&name("r"), ttl(600_000)).await }
    });
    for node in &cluster.nodes()[..2] {
        until_async(PATIENCE, async || Ok(channels(node).await? == 1)).await.unwrap();
    }
    let released = Instant::now();
    lease.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < NOTIFIED);
}

#[tokio::test]
async fn all_waiters_get_the_lock_one_after_the_other() {
    const CLIENTS: usize = 8;
    const TIMES: usize = 5;
    let cluster = cluster_of(3).await;
    let working = (0..CLIENTS).map(|_| {
        let locks = locks_of(&cluster);
        async move {
            let mut tokens = Vec::new();
            for _ in 0..TIMES {
                let lease = locks.acquire(&name("r"), ttl(10_000)).await.unwrap();
                tokens.push(lease.token().unwrap());
                lease.release().await.unwrap();
            }
            assert!(tokens.is_sorted_by(|one, other| one < other), "{tokens:?}");
            tokens
        }
    });
    let mut tokens = join_all(working).await.concat();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), CLIENTS * TIMES);
}
