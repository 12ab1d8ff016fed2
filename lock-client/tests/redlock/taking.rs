//! Taking a lock: tokens, majorities, and what is left behind.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use lock_client::{AcquireError, Released, Terms, redlock::Redlock};
use testbed::{RedlockNodes, wait::until_async};

use super::cluster::{
    COUNTER, LOCK, another_url, cluster_of, locks_of, scripts_run, set_counters, until_equal,
    until_free, values,
};
use crate::{
    lock_service::{lasting, tried, ttl},
    names::{name, token},
    start_cluster::start_cluster,
};

#[tokio::test]
async fn tokens_grow_by_one_with_every_grant_in_one_round_trip() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    // From now on, the nodes know the scripts.
    locks.acquire(&name("r"), lasting()).await.unwrap().release().await.unwrap();
    locks.settled().await;
    set_counters(&cluster, &[32; 3]).await;
    let before = join_all(cluster.nodes().iter().map(scripts_run)).await;
    for expected in 33..36 {
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        assert_eq!(lease.token(), Ok(token(expected)));
        let busy = locks.acquire(&name("r"), lasting()).await;
        assert!(matches!(busy, Err(AcquireError::Contended { remaining: Some(_) })), "{busy:?}");
        assert_eq!(lease.release().await.unwrap(), Released::Released);
    }
    locks.settled().await;
    for (node, before) in cluster.nodes().iter().zip(before) {
        let each = "a grant, a refusal, what it released in vain, and a release";
        assert_eq!(scripts_run(node).await - before, 3 * 4, "{each}");
    }
}

#[tokio::test]
async fn token_is_above_all_that_a_majority_has_issued() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    for (counters, least) in [([10, 20, 30], 21), ([50, 40, 50], 51), ([7, 7, 90], 8)] {
        set_counters(&cluster, &counters).await;
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        let issued = lease.token().unwrap();
        assert!(issued >= token(least), "{issued} after {counters:?}");
        let sealed = values(cluster.nodes(), COUNTER).await.into_iter().flatten();
        let sealed = sealed.filter(|counter| counter.parse::<u64>().unwrap() >= issued.as_u64());
        assert!(sealed.count() >= 2, "a majority never issues as low a token again");
        lease.release().await.unwrap();
        locks.settled().await;
        let next = locks.acquire(&name("r"), lasting()).await.unwrap();
        assert!(next.token().unwrap() > issued);
        next.release().await.unwrap();
        locks.settled().await;
    }
}

#[tokio::test]
async fn release_has_all_nodes_count_alike() {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[10, 20, 20]).await;
    let locks = locks_of(&cluster);
    let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
    lease.release().await.unwrap();
    until_free(cluster.nodes()).await;
    assert_eq!(until_equal(cluster.nodes(), COUNTER).await, "21");
}

#[tokio::test]
async fn minority_that_is_down_is_not_missed() {
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
async fn minority_that_hangs_is_not_waited_for() {
    let mut cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    locks.acquire(&name("r"), lasting()).await.unwrap().release().await.unwrap();
    cluster.nodes_mut()[1].process().pause().await.unwrap();
    let asked = Instant::now();
    let mut leases = Vec::new();
    for other in 0..20 {
        leases.push(locks.acquire(&name(&format!("{other}")), lasting()).await.unwrap());
    }
    // A request that stays without an answer is given up after half a second.
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(5), "answers were waited for in vain: {took:?}");
    for lease in leases {
        lease.release().await.unwrap();
    }
    cluster.nodes_mut()[1].process().resume().unwrap();
    // What the node was asked for meanwhile, it does now, and undoes.
    until_free(cluster.nodes()).await;
    // From now on it votes again.
    loop {
        let lease = locks.acquire(&name("r"), lasting()).await.unwrap();
        locks.settled().await;
        let owners = values(cluster.nodes(), LOCK).await;
        lease.release().await.unwrap();
        locks.settled().await;
        if owners.iter().all(Option::is_some) {
            break;
        }
    }
}

#[tokio::test]
async fn without_a_majority_nothing_is_had_or_left_behind() {
    let mut cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let kept = locks.acquire(&name("kept"), lasting()).await.unwrap();
    for node in &mut cluster.nodes_mut()[1..] {
        node.process().kill().unwrap();
    }
    let error = locks.acquire(&name("r"), lasting()).await.unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable(_)), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("no majority of the 3 nodes"), "{said}");
    assert!(said.contains(&cluster.nodes()[1].socket().display().to_string()), "{said}");
    locks.settled().await;
    let left: Vec<String> = cluster.nodes()[0].command(&["KEYS", "*:lock"]).await.unwrap();
    assert_eq!(left, ["fenced:{kept}:lock"]);
    assert!(kept.release().await.is_err(), "whether it is free on a majority is not known");
}

#[tokio::test]
async fn nodes_that_are_no_cluster_are_refused_at_once() {
    let forgetful = [testbed::NodeKind::FORGETFUL; 3];
    let nodes = RedlockNodes::start(&forgetful).await.unwrap();
    let error = locks_of(&nodes).acquire(&name("r"), ttl(1_000)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Rejected(_)), "{error:?}");
    assert!(error.to_string().contains("lock-client node init"), "{error}");
}

#[tokio::test]
async fn nodes_that_are_not_what_they_seem_have_no_vote() {
    let cluster = cluster_of(3).await;
    let others = cluster_of(3).await;
    let [a, b, c] = cluster.urls().try_into().unwrap();
    let [other, yet_another, _] = others.urls().try_into().unwrap();
    let refused = async |urls: &[&String]| {
        let locks = lock_client::Locks::from(Redlock::open(urls).unwrap());
        let error = locks.acquire(&name("r"), tried(1_000)).await.unwrap_err();
        assert!(matches!(error, AcquireError::Rejected(_)), "{error:?}");
        error.to_string()
    };
    let [same, again] = ["same", "again"].map(|name| another_url(&cluster.nodes()[0], name));
    let said = refused(&[&a, &same, &again]).await;
    assert!(said.contains("the same server"), "{said}");
    let said = refused(&[&a, &b, &c, &other, &yet_another]).await;
    assert!(said.contains("a cluster of another size"), "{said}");
}

#[tokio::test]
async fn node_of_another_cluster_counts_for_nothing() {
    let (cluster, others) = (cluster_of(3).await, cluster_of(3).await);
    let [a, b, _] = cluster.urls().try_into().unwrap();
    let [other, ..] = <[String; 3]>::try_from(others.urls()).unwrap();
    for urls in [[&a, &b, &other], [&other, &a, &b]] {
        let locks = lock_client::Locks::from(Redlock::open(urls).unwrap());
        // Whichever answers first; when all have, the two others are a majority.
        let lease = loop {
            match locks.acquire(&name("r"), tried(10_000)).await {
                Ok(lease) => break lease,
                Err(error) => {
                    assert!(error.to_string().contains("another cluster"), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        locks.settled().await;
        let owned = values(cluster.nodes(), LOCK).await;
        assert!(owned[0].is_some() && owned[0] == owned[1], "{owned:?}");
        assert_eq!(values(&others.nodes()[..1], LOCK).await, [None]);
        lease.release().await.unwrap();
        locks.settled().await;
    }
}

#[tokio::test]
async fn ttl_above_the_clusters_longest_is_refused() {
    let nodes = RedlockNodes::start(&[testbed::NodeKind::FORGETFUL; 3]).await.unwrap();
    start_cluster(&nodes, Duration::from_secs(2)).await;
    let locks = locks_of(&nodes);
    let error = locks.acquire(&name("r"), tried(2_001)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Rejected(_)), "{error:?}");
    assert!(error.to_string().contains("no longer ttl than 2000 ms"), "{error}");
    locks.acquire(&name("r"), tried(2_000)).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn only_odd_numbers_of_single_nodes_are_a_cluster() {
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
async fn fair_order_is_refused() {
    let cluster = cluster_of(3).await;
    let error = locks_of(&cluster).acquire(&name("r"), Terms::new(ttl(1_000)).fair()).await;
    assert!(matches!(&error, Err(AcquireError::Rejected(_))), "{error:?}");
    assert!(error.unwrap_err().to_string().contains("fair order"));
}

#[tokio::test]
async fn acquires_that_are_dropped_leave_nothing_behind() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    for micros in (0..2_000).step_by(100) {
        let resource = name("r");
        let acquiring = locks.acquire(&resource, lasting());
        if let Ok(lease) = tokio::time::timeout(Duration::from_micros(micros), acquiring).await {
            lease.unwrap().release().await.unwrap();
        }
        locks.settled().await;
        let left = values(cluster.nodes(), LOCK).await;
        assert_eq!(left, vec![None; 3], "dropped after {micros} µs");
    }
}

#[tokio::test]
async fn acquire_that_is_dropped_before_it_hears_of_its_lock_releases_it() {
    let cluster = cluster_of(3).await;
    let locks = locks_of(&cluster);
    let resource = name("r");
    loop {
        let mut acquiring = pin!(locks.acquire(&resource, lasting()));
        assert!(futures_util::poll!(&mut acquiring).is_pending());
        // A machine that is too busy has it missed: then it is tried again.
        let taken = async || Ok(values(cluster.nodes(), LOCK).await.iter().all(Option::is_some));
        if until_async(Duration::from_secs(2), taken).await.is_ok() {
            break;
        }
    }
    until_free(cluster.nodes()).await;
}

#[tokio::test]
async fn of_rivals_who_try_once_at_the_same_time_one_gets_it() {
    let cluster = cluster_of(3).await;
    let rivals = [locks_of(&cluster), locks_of(&cluster), locks_of(&cluster)];
    for round in 0..40 {
        let resource = name(&format!("r/{round}"));
        let trying = rivals.iter().map(|locks| locks.acquire(&resource, lasting()));
        let results = join_all(trying).await;
        let had = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(had, 1, "in round {round}: {results:?}");
    }
}
