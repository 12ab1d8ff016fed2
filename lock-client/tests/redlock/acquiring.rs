//! Acquiring a lock: tokens, majorities, and no leftovers.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::join_all};
use lock_client::{AcquireError, Locks, Released, Terms, redlock::Redlock};
use testbed::{RedlockNodes, wait::until_async};

use super::cluster::{
    COUNTER, LOCK, another_url, cluster_of, locks_of, scripts_run, set_counters, until_equal,
    until_free, values,
};
use crate::{
    lock_service::{lasting, tried, ttl, with_causes},
    names::{name, token},
    start_cluster::start_cluster,
};

#[tokio::test]
async fn tokens_grow_by_one_with_every_grant_in_one_round_trip() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    // Now the nodes have loaded the scripts.
    locks.acquire(&name("r"), lasting()).await.unwrap().release().await.unwrap();
    locks.wait_for_background().await;
    set_counters(&cluster, &[32; 3]).await;
    let before = join_all(cluster.nodes().iter().map(scripts_run)).await;
    for expected in 33..36 {
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        assert_eq!(lease.token(), Ok(token(expected)));
        let busy = locks.acquire(&name("r"), lasting()).await;
        assert!(
            matches!(busy, Err(AcquireError::Contended { remaining: Some(_), .. })),
            "{busy:?}"
        );
        assert_eq!(lease.release().await.unwrap(), Released::Released);
    }
    locks.wait_for_background().await;
    for (node, before) in cluster.nodes().iter().zip(before) {
        let each = "a grant, a rejection, the release after the rejection, and a release";
        assert_eq!(scripts_run(node).await - before, 3 * 4, "{each}");
    }
}

#[tokio::test]
async fn token_is_above_all_tokens_of_a_majority() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    for (counters, least) in [([10, 20, 30], 21), ([50, 40, 50], 51), ([7, 7, 90], 8)] {
        set_counters(&cluster, &counters).await;
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        let issued = lease.token().unwrap();
        assert!(issued >= token(least), "{issued} after {counters:?}");
        let sealed = values(cluster.nodes(), COUNTER).await.into_iter().flatten();
        let sealed = sealed.filter(|counter| counter.parse::<u64>().unwrap() >= issued.as_u64());
        assert!(sealed.count() >= 2, "a majority never issues this token or a lower one again");
        lease.release().await.unwrap();
        locks.wait_for_background().await;
        let next = locks.acquire(&name("r"), lasting()).await.unwrap();
        assert!(next.token().unwrap() > issued);
        next.release().await.unwrap();
        locks.wait_for_background().await;
    }
}

#[tokio::test]
async fn release_raises_the_counters_of_all_nodes_to_the_token() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[10, 20, 20]).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    lease.release().await.unwrap();
    until_free(cluster.nodes()).await;
    assert_eq!(until_equal(cluster.nodes(), COUNTER).await, "21");
}

#[tokio::test]
async fn lock_is_acquired_while_a_minority_is_down() {
    let mut cluster = cluster_of(5).await;
    for node in &mut cluster.nodes_mut()[3..] {
        node.process().kill().unwrap();
    }
    let locks = locks_of(&cluster);
    let first = locks.acquire(&name("r"), lasting()).await.unwrap();
    let issued = first.token().unwrap();
    first.release().await.unwrap();
    let second = locks.acquire(&name("r"), lasting()).await.unwrap();
    assert!(second.token().unwrap() > issued);
}

#[tokio::test]
async fn acquire_does_not_wait_for_a_minority_that_hangs() {
    let mut cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    locks.acquire(&name("r"), lasting()).await.unwrap().release().await.unwrap();
    cluster.nodes_mut()[1].process().pause().await.unwrap();
    let asked = Instant::now();
    let mut leases = Vec::new();
    for other in 0..20 {
        leases.push(locks.acquire(&name(&format!("{other}")), lasting()).await.unwrap());
    }
    // A request without an answer times out after half a second.
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(5), "it waited for the node that hangs: {took:?}");
    for lease in leases {
        lease.release().await.unwrap();
    }
    cluster.nodes_mut()[1].process().resume().unwrap();
    // The node now carries out the requests that it got meanwhile, and the releases after them.
    until_free(cluster.nodes()).await;
    // It votes again.
    loop {
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        locks.wait_for_background().await;
        let owners = values(cluster.nodes(), LOCK).await;
        lease.release().await.unwrap();
        locks.wait_for_background().await;
        if owners.iter().all(Option::is_some) {
            break;
        }
    }
}

#[tokio::test]
async fn without_a_majority_no_lock_is_acquired_and_nothing_remains() {
    let mut cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let kept = locks.acquire(&name("kept"), lasting()).await.unwrap();
    for node in &mut cluster.nodes_mut()[1..] {
        node.process().kill().unwrap();
    }
    let error = locks.acquire(&name("r"), lasting()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error:?}");
    let message = with_causes(&error);
    assert!(message.contains("no majority of the 3 nodes"), "{message}");
    let address = cluster.nodes()[1].socket().display().to_string();
    assert!(message.contains(&address), "the error names the node: {message}");
    locks.wait_for_background().await;
    let left: Vec<String> = cluster.nodes()[0].command(&["KEYS", "*:lock"]).await.unwrap();
    assert_eq!(left, ["fenced:{kept}:lock"]);
    assert!(kept.release().await.is_err(), "it is unknown whether the lock is free on a majority");
}

#[tokio::test]
async fn node_grants_nothing_from_a_counter_that_is_no_number() {
    let cluster = cluster_of(3).await;
    for counter in ["-0", "1e3", "1.5", "x", "999999999999999"] {
        for node in cluster.nodes() {
            node.set(COUNTER, counter).await.unwrap();
        }
        let locks = locks_of(&cluster);
        let acquired = locks.acquire(&name("r"), tried(60_000)).await;
        assert!(acquired.is_err(), "{counter}: {acquired:?}");
        locks.wait_for_background().await;
        assert_eq!(values(cluster.nodes(), LOCK).await, [None, None, None], "{counter}");
        let counters = values(cluster.nodes(), COUNTER).await;
        assert!(counters.iter().all(|kept| kept.as_deref() == Some(counter)), "{counters:?}");
    }
}

#[tokio::test]
async fn nodes_without_a_cluster_are_rejected_at_once() {
    let forgetful = [testbed::NodeKind::FORGETFUL; 3];
    let nodes = RedlockNodes::start(&forgetful).await.unwrap();
    let error = locks_of(&nodes).acquire(&name("r"), ttl(1_000)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Rejected { .. }), "{error:?}");
    assert!(with_causes(&error).contains("lock-client node init"), "{error}");
}

#[tokio::test]
async fn server_that_is_named_twice_has_no_vote() {
    let cluster = cluster_of(3).await;
    let [a, _, _] = <[String; 3]>::try_from(cluster.urls()).unwrap();
    let rejection = async |urls: &[&String]| {
        let locks = Locks::new(Redlock::open(urls).unwrap());
        let error = locks.acquire(&name("r"), tried(1_000)).await.unwrap_err();
        with_causes(&error)
    };
    let [same, again] = ["same", "again"].map(|name| another_url(&cluster.nodes()[0], name));
    let error = rejection(&[&a, &same, &again]).await;
    assert!(error.contains("the same server"), "{error}");
}

/// The members are those in the record of the largest cluster.
#[tokio::test]
async fn named_nodes_that_are_no_members_are_left_out() {
    let (cluster, others) = (cluster_of(3).await, cluster_of(3).await);
    let named = [cluster.urls(), others.urls()[..2].to_vec()].concat();
    let locks = lock_client::Locks::new(Redlock::open(named).unwrap());
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    locks.wait_for_background().await;
    let owned = values(cluster.nodes(), LOCK).await;
    assert!(owned.iter().flatten().count() >= 2, "{owned:?}");
    assert_eq!(values(others.nodes(), LOCK).await, [None, None, None]);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn node_of_another_cluster_does_not_count() {
    let (cluster, others) = (cluster_of(3).await, cluster_of(3).await);
    let [a, b, _] = cluster.urls().try_into().unwrap();
    let [other, ..] = <[String; 3]>::try_from(others.urls()).unwrap();
    for urls in [[&a, &b, &other], [&other, &a, &b]] {
        let locks = Locks::new(Redlock::open(urls).unwrap());
        // Its answer may come first. When all have answered, the two others are a majority.
        let mut acquired = locks.acquire(&name("r"), tried(10_000)).await;
        let begun = Instant::now();
        while let Err(error) = &acquired {
            assert!(with_causes(error).contains("another cluster"), "{error}");
            assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
            acquired = locks.acquire(&name("r"), tried(10_000)).await;
        }
        let lease = acquired.unwrap();
        locks.wait_for_background().await;
        let owned = values(cluster.nodes(), LOCK).await;
        assert!(owned[0].is_some() && owned[0] == owned[1], "{owned:?}");
        assert_eq!(values(&others.nodes()[..1], LOCK).await, [None]);
        lease.release().await.unwrap();
        locks.wait_for_background().await;
    }
}

#[tokio::test]
async fn ttl_above_the_longest_of_the_cluster_is_rejected() {
    let nodes = RedlockNodes::start(&[testbed::NodeKind::FORGETFUL; 3]).await.unwrap();
    start_cluster(&nodes, Duration::from_secs(2)).await;
    let locks = locks_of(&nodes);
    let error = locks.acquire(&name("r"), tried(2_001)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Invalid { .. }), "{error:?}");
    assert!(
        with_causes(&error).contains("the ttl of 2s1ms is longer than the cluster's longest, 2s"),
        "{error}"
    );
    locks.acquire(&name("r"), tried(2_000)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn longest_ttl_is_that_of_the_cluster_and_not_of_a_foreign_node() {
    let (nodes, foreign) =
        tokio::join!(RedlockNodes::start(&[testbed::NodeKind::FORGETFUL; 3]), cluster_of(3));
    let nodes = nodes.unwrap();
    start_cluster(&nodes, Duration::from_secs(2)).await;
    let mut urls = nodes.urls();
    urls[0] = foreign.urls().swap_remove(0);
    let locks = Locks::new(Redlock::open(urls).unwrap());
    for _ in 0..2 {
        let error = locks.acquire(&name("r"), tried(10_000)).await.unwrap_err();
        assert!(matches!(error, AcquireError::Invalid { .. }), "{error:?}");
        assert_eq!(values(nodes.nodes(), LOCK).await, [None, None, None]);
    }
    locks.acquire(&name("r"), tried(2_000)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn cluster_must_be_an_odd_number_of_single_nodes() {
    let four = ["redis://a", "redis://b", "redis://c", "redis://d"];
    for urls in [&four[..0], &four[..1], &four[..2], &four] {
        let error = Redlock::open(urls).unwrap_err().to_string();
        assert!(error.contains(&format!("not {}", urls.len())), "{error}");
    }
    let error = Redlock::open(["redis://a", "redis://b", "redis://:secret@a"]).unwrap_err();
    assert!(error.to_string().contains("a:6379 is named twice"), "{error}");
    let error = Redlock::open(["redis://a", "redis://b", "redis+cluster://c"]).unwrap_err();
    assert!(error.to_string().contains("no Cluster"), "{error}");
}

#[tokio::test]
async fn fair_order_is_rejected() {
    let cluster = cluster_of(3).await;
    let error = locks_of(&cluster).acquire(&name("r"), Terms::new(ttl(1_000)).fair()).await;
    assert!(matches!(&error, Err(AcquireError::Invalid { .. })), "{error:?}");
    assert!(with_causes(&error.unwrap_err()).contains("fair order"));
}

#[tokio::test]
async fn acquire_that_is_dropped_leaves_no_lock_on_any_node() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    for micros in (0..2_000).step_by(100) {
        let resource = name("r");
        let acquiring = locks.acquire(&resource, lasting());
        if let Ok(lease) = tokio::time::timeout(Duration::from_micros(micros), acquiring).await {
            lease.unwrap().release().await.unwrap();
        }
        locks.wait_for_background().await;
        let left = values(cluster.nodes(), LOCK).await;
        assert_eq!(left, vec![None; 3], "dropped after {micros} µs");
    }
}

#[tokio::test]
async fn acquire_that_is_dropped_after_the_nodes_granted_releases_the_lock() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let resource = name("r");
    loop {
        let mut acquiring = pin!(locks.acquire(&resource, lasting()));
        assert!(acquiring.as_mut().now_or_never().is_none());
        // On a busy machine, the round may time out before that: then try again.
        let taken = async || Ok(values(cluster.nodes(), LOCK).await.iter().all(Option::is_some));
        if until_async(Duration::from_secs(2), taken).await.is_ok() {
            break;
        }
    }
    until_free(cluster.nodes()).await;
}

#[tokio::test]
async fn one_of_several_clients_that_try_once_at_the_same_time_acquires_the_lock() {
    let cluster = cluster_of(3).await;
    let rivals = [locks_of(&cluster), locks_of(&cluster), locks_of(&cluster)];
    for round in 0..40 {
        let resource = name(&format!("r/{round}"));
        let trying = rivals.iter().map(|locks| locks.acquire(&resource, lasting()));
        let results = join_all(trying).await;
        let acquired = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(acquired, 1, "in round {round}: {results:?}");
    }
}
