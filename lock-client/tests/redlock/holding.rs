//! Holding a lock: renewal, loss, reissue, release, and adoption by another client.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    AcquireError, Order, Released, RenewError,
    backend::{Attempt, Backend, BackendError, Ownership},
    redlock::Redlock,
};

use super::cluster::{
    COUNTER, LOCK, cluster_of, locks_of, set_counters, until_equal, until_free, values,
};
use crate::{
    lock_service::{lasting, tried, ttl, unrenewed},
    names::{name, token},
};

#[tokio::test]
async fn lease_survives_the_failure_of_a_minority_but_not_of_a_majority() {
    let mut cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), tried(6_000)).await.unwrap();
    locks.wait_for_background().await;
    cluster.nodes_mut()[0].process().kill().unwrap();
    tokio::time::timeout(Duration::from_secs(9), lease.lost()).await.unwrap_err();
    assert!(lease.token().is_ok(), "the two other nodes renewed it");
    cluster.nodes_mut()[1].process().kill().unwrap();
    tokio::time::timeout(Duration::from_secs(10), lease.lost()).await.unwrap();
    assert!(lease.token().is_err());
}

#[tokio::test]
async fn lock_that_a_majority_does_not_have_any_more_is_lost_at_the_next_renewal() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    let [a, b, _] = cluster.nodes() else { unreachable!("there are three") };
    // A lease would regain one node.
    a.command::<()>(&["DEL", LOCK]).await.unwrap();
    b.command::<()>(&["DEL", LOCK]).await.unwrap();
    let lost = lease.renew().await;
    assert!(matches!(lost, Err(RenewError::Lost(_))), "{lost:?}");
    drop(lease);
    until_free(cluster.nodes()).await;
}

#[tokio::test]
async fn renewal_without_a_majority_may_be_retried() {
    let mut cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), unrenewed(20_000)).await.unwrap();
    for node in &mut cluster.nodes_mut()[..2] {
        node.process().pause().await.unwrap();
    }
    let error = lease.renew().await.unwrap_err();
    assert!(matches!(error, RenewError::LockService { .. }), "{error:?}");
    assert!(lease.token().is_ok());
    for node in &mut cluster.nodes_mut()[..2] {
        node.process().resume().unwrap();
    }
    let mut renewed = lease.renew().await;
    while let Err(RenewError::LockService { .. }) = renewed {
        tokio::time::sleep(Duration::from_millis(10)).await;
        renewed = lease.renew().await;
    }
    renewed.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn reissued_token_is_above_all_tokens_of_a_majority() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[32; 3]).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    lease.reissue(token(40)).await.unwrap();
    assert_eq!(lease.token(), Ok(token(41)));
    set_counters(&cluster, &[100, 70, 100]).await;
    lease.reissue(token(41)).await.unwrap();
    assert_eq!(lease.token(), Ok(token(101)), "any majority has a counter of 100");
    locks.wait_for_background().await;
    assert_eq!(until_equal(cluster.nodes(), COUNTER).await, "101");
    // The lease is renewed and released as the same ownership.
    lease.renew().await.unwrap();
    assert_eq!(lease.token(), Ok(token(101)));
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    let next = locks.acquire(&name("r"), lasting()).await.unwrap();
    assert_eq!(next.token(), Ok(token(102)));
}

#[tokio::test]
async fn reissue_that_reached_one_node_is_completed_before_its_token_is_returned() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[32; 3]).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    // The state after a reissue that was interrupted when it had reached one node.
    let node = &cluster.nodes()[1];
    let sealed: String = node.command(&["GET", LOCK]).await.unwrap();
    node.set(COUNTER, "90").await.unwrap();
    let reissued = format!("{sealed} 90 33");
    node.command::<()>(&["SET", LOCK, &reissued, "KEEPTTL"]).await.unwrap();
    // The renewal meets that node only if it is among the first to answer.
    while lease.token() == Ok(token(33)) {
        lease.renew().await.unwrap();
    }
    assert_eq!(lease.token(), Ok(token(90)));
    let counters = values(cluster.nodes(), COUNTER).await.into_iter().flatten();
    assert!(counters.filter(|counter| counter == "90").count() >= 2);
    // A client that adopts the lease gets the same token, whichever nodes answer first.
    let detached = lease.detach().unwrap();
    let adopted = locks_of(&cluster).adopt(detached, lasting()).await.unwrap();
    assert_eq!(adopted.token(), Ok(token(90)));
    adopted.release().await.unwrap();
    assert_eq!(
        until_equal(cluster.nodes(), COUNTER).await,
        "90",
        "a release raises all counters to the token"
    );
}

/// A process without a vote may have lost the lock, and may get it back by a join. It frees the lock all the
/// same. One that votes for the next roster is as good as before.
#[tokio::test]
async fn release_counts_the_answers_of_voters_alone() {
    for (step, is_done) in [("lost", false), ("changed", true)] {
        let cluster = cluster_of(3).await;
        let (redlock, r) = (Redlock::open(cluster.urls()).unwrap(), name("r"));
        let holder = Holder::random();
        let tried = redlock.try_acquire(&r, &holder, ttl(60_000), Order::Unordered).await.unwrap();
        let Attempt::Granted { ownership, token, .. } = tried else { panic!("{tried:?}") };
        for node in &cluster.nodes()[..2] {
            let vote: String = node.command(&["HGET", "fenced:node", "vote"]).await.unwrap();
            let changed = format!("another {}", vote.split_once(' ').unwrap().1);
            let vote = if step == "lost" { "" } else { &changed };
            node.command::<()>(&["HSET", "fenced:node", "vote", vote]).await.unwrap();
        }
        let released = redlock.release(&r, &ownership.holder, Some(token)).await;
        assert_eq!(released.as_ref().ok(), is_done.then_some(&true), "{step}: {released:?}");
        redlock.wait_for_releases().await;
        until_free(cluster.nodes()).await;
    }
}

#[tokio::test]
async fn release_without_a_majority_of_answers_is_not_reported_as_done() {
    for hung in [2, 3] {
        let mut cluster = cluster_of(3).await;
        let lease = locks_of(&cluster).acquire(&name("r"), lasting()).await.unwrap();
        for node in &mut cluster.nodes_mut()[..hung] {
            node.process().pause().await.unwrap();
        }
        let error = lease.release().await.unwrap_err();
        assert!(
            matches!(error.source, BackendError::Unavailable(_)),
            "{hung} nodes hang: {error:?}"
        );
    }
}

#[tokio::test]
async fn lease_is_adopted_by_another_client() {
    let cluster = cluster_of(3).await;
    let lease = locks_of(&cluster).acquire(&name("r"), lasting()).await.unwrap();
    let issued = lease.token().unwrap();
    let other = locks_of(&cluster);
    let status = other.status(&name("r")).await.unwrap();
    assert_eq!(status.held.map(|held| held.token), Some(issued));
    let adopted = other.adopt(lease.detach().unwrap(), lasting()).await.unwrap();
    assert_eq!(adopted.token(), Ok(issued));
    assert_eq!(adopted.release().await.unwrap(), Released::Released);
    other.wait_for_background().await;
    assert_eq!(other.status(&name("r")).await.unwrap().held, None);
    assert_eq!(values(cluster.nodes(), LOCK).await, vec![None; 3]);
}

#[tokio::test]
async fn another_client_acquires_the_lock_when_it_has_expired() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    assert_eq!(locks.status(&name("r")).await.unwrap().held, None);
    let first = locks_of(&cluster).acquire(&name("r"), unrenewed(5_000)).await.unwrap();
    let issued = first.token().unwrap();
    first.detach().unwrap();
    let busy = locks.acquire(&name("r"), tried(1_000)).await;
    assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    let second = locks.acquire(&name("r"), ttl(10_000)).await.unwrap();
    assert!(second.token().unwrap() > issued);
    second.release().await.unwrap();
}

#[test]
fn lease_that_returns_to_a_client_has_the_higher_token() {
    let redlock = Redlock::open(["redis://a", "redis://b", "redis://c"]).unwrap();
    let ownership = Ownership { holder: Holder::random(), grant: token(3) };
    redlock.adopt(&ownership, token(5));
    redlock.adopt(&ownership, token(9));
    redlock.adopt(&ownership, token(7));
    assert_eq!(redlock.detach(&ownership, token(3)), token(9));
    assert_eq!(redlock.detach(&ownership, token(3)), token(3), "the client has forgotten it");
}

/// Two nodes freed the lock, one did not have it, and the others may have had it.
#[tokio::test]
async fn lock_that_a_majority_may_have_had_is_reported_as_released_once_it_is_free() {
    let mut cluster = cluster_of(5).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    cluster.nodes()[0].command::<()>(&["DEL", LOCK]).await.unwrap();
    for node in &mut cluster.nodes_mut()[3..] {
        node.process().pause().await.unwrap();
    }
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    let next = locks_of(&cluster).acquire(&name("r"), lasting()).await;
    assert!(next.is_ok(), "the lock is free on a majority: {next:?}");
}

#[tokio::test]
async fn status_leaves_out_a_node_with_an_invalid_value() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    cluster.nodes()[0].set(LOCK, "written by hand").await.unwrap();
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!((held.token, held.nodes), (lease.token().unwrap(), Some(2)));
    // Without a majority of valid values, the state is unknown.
    cluster.nodes()[1].set(LOCK, "written by hand").await.unwrap();
    assert!(locks.status(&name("r")).await.is_err());
}

/// The release raises the counter there, which needs memory.
#[tokio::test]
async fn release_frees_the_lock_on_a_node_whose_memory_is_full() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    let full = &cluster.nodes()[0];
    full.set(COUNTER, "1").await.unwrap();
    full.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    full.set("another", "key").await.expect_err("its memory is full");
    assert_eq!(lease.release().await.unwrap(), Released::Released);
    locks.wait_for_background().await;
    assert_eq!(values(cluster.nodes(), LOCK).await, [None, None, None]);
}
