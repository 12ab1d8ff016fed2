//! Leases that regain nodes: those that they lost, and those that others had at first.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Lease, Locks, Order, Released, RenewError,
    backend::{Attempt, Backend, BackendError},
    redlock::Redlock,
};
use testbed::{Proxy, RedlockNodes, proxy::HeldRequest, wait::until_async};

use super::cluster::{
    COUNTER, LOCK, cluster_of, locks_of, set_counters, until_equal, until_free, values,
};
use crate::{
    lock_service::{lasting, ttl},
    names::{name, token},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Acquires the lock on all nodes.
async fn acquired_everywhere(cluster: &RedlockNodes) -> (Locks, Lease) {
    let locks = locks_of(cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    until_on(&locks, cluster.nodes().len()).await;
    (locks, lease)
}

/// Waits until the lock is held on so many nodes. A status may miss a node that is late.
async fn until_on(locks: &Locks, nodes: usize) {
    until_async(PATIENCE, async || Ok(nodes_of(locks).await == Some(nodes))).await.unwrap();
}

/// Returns on how many nodes the lock is held.
async fn nodes_of(locks: &Locks) -> Option<usize> {
    locks.status(&name("r")).await.unwrap().held.and_then(|held| held.nodes)
}

/// Frees the lock on one node, as if it had expired.
async fn free(cluster: &RedlockNodes, node: usize) {
    let deleted: u8 = cluster.nodes()[node].command(&["DEL", LOCK]).await.unwrap();
    assert_eq!(deleted, 1, "somebody had the lock on this node");
}

#[tokio::test]
async fn lease_that_loses_every_node_one_at_a_time_regains_each_and_keeps_its_token() {
    let cluster = cluster_of(5).await;
    let (locks, lease) = acquired_everywhere(&cluster).await;
    let issued = lease.token();
    for node in (0..5).chain(0..5) {
        free(&cluster, node).await;
        // One renewal finds it free and joins. The next one counts it.
        for _ in 0..2 {
            lease.renew().await.unwrap();
            locks.wait_for_background().await;
        }
        until_on(&locks, 5).await;
        assert_eq!(lease.token(), issued);
    }
    // A client that adopts the lease learns the grants of the nodes from them.
    let adopted = locks_of(&cluster).adopt(lease.detach().unwrap(), lasting()).await.unwrap();
    assert!(adopted.token().unwrap() >= issued.unwrap());
    assert_eq!(adopted.release().await.unwrap(), Released::Released);
    until_free(cluster.nodes()).await;
}

/// The lock on node 0 expires while the node hangs. A reissue would raise the counters of the others.
#[tokio::test]
async fn node_that_merely_hung_comes_back_without_a_reissue() {
    for failed_tries in [0, 1] {
        let mut cluster = cluster_of(3).await;
        set_counters(&cluster, &[32; 3]).await;
        let (locks, lease) = acquired_everywhere(&cluster).await;
        let hung = &mut cluster.nodes_mut()[0];
        hung.set(COUNTER, &(33 + failed_tries).to_string()).await.unwrap();
        // A lock that expires soon may be renewed before that.
        hung.command::<()>(&["DEL", LOCK]).await.unwrap();
        hung.process().pause().await.unwrap();
        lease.renew().await.unwrap();
        cluster.nodes_mut()[0].process().resume().unwrap();
        let is_back = async || {
            lease.renew().await?;
            locks.wait_for_background().await;
            Ok(nodes_of(&locks).await == Some(3))
        };
        until_async(PATIENCE, is_back).await.unwrap();
        let counters = values(&cluster.nodes()[1..], COUNTER).await;
        let is_kept = counters.iter().flatten().all(|counter| counter == "33");
        // The control: another client has tried there, and the lease takes a higher token.
        assert_eq!(is_kept, failed_tries == 0, "{counters:?}");
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn node_whose_counter_has_passed_the_token_is_joined_and_counts_after_a_reissue() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[32; 3]).await;
    let (locks, lease) = acquired_everywhere(&cluster).await;
    free(&cluster, 0).await;
    cluster.nodes()[0].set(COUNTER, "50").await.unwrap();
    lease.renew().await.unwrap();
    locks.wait_for_background().await;
    let joined = values(cluster.nodes(), LOCK).await.swap_remove(0).unwrap();
    let parts: Vec<_> = joined.split(' ').collect();
    assert_eq!((parts[3], parts[0]), ("51", "50"), "its own grant and its floor: {joined}");
    assert!(parts[2].parse::<u64>().unwrap() > 50, "sealed above its floor: {joined}");
    assert_eq!(lease.token(), Ok(token(33)), "the token that was handed out stays");
    // Now the node counts: another one may be lost.
    free(&cluster, 1).await;
    lease.renew().await.unwrap();
    assert_eq!(lease.token(), Ok(token(33)));
    // A reissue for the storage's sake is above everything that was sealed before.
    let sealed: u64 = values(cluster.nodes(), COUNTER).await[0].clone().unwrap().parse().unwrap();
    assert!(lease.reissue(token(33)).await.unwrap().as_u64() > sealed);
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// Who restarts one node after the other must not rely on this one yet.
#[tokio::test]
async fn status_leaves_out_a_joined_node_that_does_not_count_yet() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[32; 3]).await;
    let (locks, lease) = acquired_everywhere(&cluster).await;
    let joined = format!("50 {} 33 51", lease.holder().as_str());
    cluster.nodes()[0].set(LOCK, &joined).await.unwrap();
    assert_eq!(nodes_of(&locks).await, Some(2));
    // One renewal learns the grant. The next one has the node count.
    for _ in 0..2 {
        lease.renew().await.unwrap();
        locks.wait_for_background().await;
    }
    // A reissue has sealed a token above its floor.
    until_on(&locks, 3).await;
    lease.release().await.unwrap();
}

#[tokio::test]
async fn joined_node_that_does_not_count_yet_keeps_no_lease_alive() {
    let cluster = cluster_of(3).await;
    let (_, lease) = acquired_everywhere(&cluster).await;
    // Another client may have had the lock on both nodes in the meantime.
    free(&cluster, 0).await;
    free(&cluster, 1).await;
    let lost = lease.renew().await;
    assert!(matches!(lost, Err(RenewError::Lost(_))), "{lost:?}");
    drop(lease);
    until_free(cluster.nodes()).await;
}

#[tokio::test]
async fn lease_that_began_on_a_majority_regains_the_nodes_of_its_rivals() {
    let cluster = cluster_of(5).await;
    // A rival's round, which has two nodes.
    for node in &cluster.nodes()[..2] {
        node.set(COUNTER, "40").await.unwrap();
        node.set(LOCK, "40 40 rival-0 39").await.unwrap();
    }
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    until_on(&locks, 3).await;
    let issued = lease.token();
    free(&cluster, 0).await;
    free(&cluster, 1).await;
    until_async(PATIENCE, async || {
        lease.renew().await?;
        locks.wait_for_background().await;
        Ok(nodes_of(&locks).await == Some(5))
    })
    .await
    .unwrap();
    assert_eq!(lease.token(), issued);
    lease.release().await.unwrap();
    until_free(cluster.nodes()).await;
}

#[tokio::test]
async fn released_lease_joins_no_node() {
    let cluster = cluster_of(5).await;
    for _ in 0..20 {
        let (locks, lease) = acquired_everywhere(&cluster).await;
        free(&cluster, 0).await;
        // The join and the release are on their way at the same time.
        lease.renew().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        locks.wait_for_background().await;
        assert_eq!(values(cluster.nodes(), LOCK).await, vec![None; 5]);
    }
}

#[tokio::test]
async fn detached_lease_joins_no_node() {
    let cluster = cluster_of(5).await;
    for _ in 0..5 {
        let (locks, lease) = acquired_everywhere(&cluster).await;
        free(&cluster, 0).await;
        // The join would follow in the background.
        lease.renew().await.unwrap();
        let detached = lease.detach().unwrap();
        locks.wait_for_background().await;
        let owners = values(cluster.nodes(), LOCK).await;
        assert_eq!(owners.iter().flatten().count(), 4, "{owners:?}");
        let adopted = locks_of(&cluster).adopt(detached, lasting()).await.unwrap();
        assert_eq!(adopted.release().await.unwrap(), Released::Released);
        until_free(cluster.nodes()).await;
    }
}

/// A join of node 0 that is on its way there.
struct LateJoin {
    cluster: RedlockNodes,
    proxy: Proxy,
    locks: Locks,
    lease: Lease,
    join: HeldRequest,
}

impl LateJoin {
    /// The node has forgotten the script of a join. So the client sends the join once more, in full,
    /// and a release may overtake it.
    async fn start() -> Self {
        let cluster = cluster_of(3).await;
        let proxy = Proxy::start(cluster.nodes()[0].socket()).await.unwrap();
        let urls = [vec![proxy.url("redis")], cluster.urls()[1..].to_vec()].concat();
        let locks = Locks::new(Redlock::open(urls).unwrap());
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        locks.wait_for_background().await;
        free(&cluster, 0).await;
        lease.renew().await.unwrap();
        locks.wait_for_background().await;
        free(&cluster, 0).await;
        cluster.nodes()[0].command::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
        // A renewal does not name the counter.
        let join = proxy.hold(COUNTER);
        lease.renew().await.unwrap();
        let join = join.caught().await.unwrap();
        Self { cluster, proxy, locks, lease, join }
    }
}

#[tokio::test]
async fn node_that_is_joined_after_the_release_is_freed_although_its_reply_is_lost() {
    let LateJoin { cluster, proxy, locks, lease, join } = LateJoin::start().await;
    proxy.lose_reply_to("Takes this node for a lease");
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    join.deliver();
    locks.wait_for_background().await;
    assert!(proxy.has_struck());
    assert_eq!(values(cluster.nodes(), LOCK).await, [None, None, None]);
}

/// The client that adopts the lease may have counted the node by then.
#[tokio::test]
async fn node_that_is_joined_after_the_lease_was_detached_stays_with_the_lease() {
    let LateJoin { cluster, proxy: _proxy, locks, lease, join } = LateJoin::start().await;
    let detached = lease.detach().unwrap();
    join.deliver();
    locks.wait_for_background().await;
    let owners = values(cluster.nodes(), LOCK).await;
    assert!(owners.iter().all(Option::is_some), "{owners:?}");
    let adopted = locks.adopt(detached, lasting()).await.unwrap();
    assert_eq!(adopted.release().await.unwrap(), Released::Released);
}

/// The client has never known a majority, and the lock may be held.
#[tokio::test]
async fn release_by_a_client_that_finds_no_members_is_not_called_rejected() {
    let cluster = cluster_of(3).await;
    let (r, holder) = (name("r"), Holder::random());
    let first = Redlock::open(cluster.urls()).unwrap();
    let granted = first.try_acquire(&r, &holder, ttl(600_000), Order::Unordered).await.unwrap();
    let Attempt::Granted { ownership, token, .. } = granted else { panic!("{granted:?}") };
    for node in &cluster.nodes()[1..] {
        node.command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    }
    let second = Redlock::open(cluster.urls()).unwrap();
    let released = second.release(&r, &ownership.holder, Some(token)).await;
    assert!(matches!(released, Err(BackendError::Unavailable(_))), "{released:?}");
}

#[tokio::test]
async fn repeated_release_raises_the_counters_to_all_tokens_that_a_lease_has_sealed() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[32; 3]).await;
    let (r, holder) = (name("r"), Holder::random());
    let first = Redlock::open(cluster.urls()).unwrap();
    let granted = first.try_acquire(&r, &holder, ttl(600_000), Order::Unordered).await.unwrap();
    let Attempt::Granted { ownership, token: issued, .. } = granted else { panic!("{granted:?}") };
    let mut proxies = Vec::new();
    for node in cluster.nodes() {
        proxies.push(Proxy::start(node.socket()).await.unwrap());
    }
    let second = Redlock::open(proxies.iter().map(|proxy| proxy.url("redis"))).unwrap();
    second.adopt(&ownership, token(50));
    second.status(&r).await.unwrap();
    proxies.iter().for_each(Proxy::cut);
    second.release(&r, &ownership.holder, Some(issued)).await.unwrap_err();
    proxies.iter().for_each(Proxy::mend);
    let released = async || Ok(second.release(&r, &ownership.holder, Some(issued)).await.is_ok());
    until_async(PATIENCE, released).await.unwrap();
    until_free(cluster.nodes()).await;
    assert_eq!(until_equal(cluster.nodes(), COUNTER).await, "50");
}
