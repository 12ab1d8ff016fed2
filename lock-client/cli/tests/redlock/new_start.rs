//! `lock-client node init --from`: a start with the counters of an earlier cluster.

use std::{
    process::Output,
    slice,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use testbed::{Proxy, Redis, proxy::Latency, wait::until_async};

use super::nodes::Nodes;
use crate::command::{PATIENCE, assert_failed, events, lock_client};

pub(super) const HIGH: u64 = 900_000_000_000_000;

pub(super) async fn init(new: &[String], more: &[&str]) -> Output {
    let urls = new.join(" ");
    let start = ["node", "init", "--max-ttl", "2s", "--locks", &urls];
    lock_client(&[&start, more].concat()).await
}

/// A new cluster of five in place of one of three, of which it has these nodes.
async fn init_from(nodes: &Nodes, old: &[usize], new: &[usize]) -> Output {
    let urls = nodes.urls();
    let new: Vec<_> = new.iter().map(|&node| urls[node].clone()).collect();
    let from: Vec<_> = old.iter().flat_map(|&node| ["--from", urls[node].as_str()]).collect();
    init(&new, &from).await
}

/// Seven nodes, the first three of them a cluster. The highest counter is on nodes 0 and 1.
pub(super) async fn seven() -> Nodes {
    let nodes = Nodes::start(7, &[]).await;
    assert!(init(&nodes.urls()[..3], &[]).await.status.success());
    for (node, counter) in [(0, HIGH + 1), (1, HIGH + 1), (2, HIGH)] {
        nodes.0[node].set("fenced:{r}:token", &counter.to_string()).await.unwrap();
    }
    nodes
}

#[tokio::test]
async fn cluster_of_another_size_starts_at_or_above_the_highest_counters() {
    let new = [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [2, 3, 4, 5, 6]];
    for (highest, new) in new.into_iter().enumerate() {
        let mut nodes = seven().await;
        // One voter alone has it: a copy from the others would not be enough.
        nodes.0[highest].set("fenced:{r}:token", &(HIGH + 2).to_string()).await.unwrap();
        let asked = Instant::now();
        let started = init_from(&nodes, &[0, 1, 2], &new).await;
        assert!(started.status.success(), "{started:?}");
        assert!(asked.elapsed() >= Duration::from_millis(2_022), "the longest ttl");
        assert_eq!(events(&started)[0]["voting"], 5);
        for node in new {
            assert!(nodes.counter(node).await >= Some(HIGH + 2), "node {node}");
        }
        // A client of the old cluster that was not stopped gets nothing.
        let old = Nodes(nodes.0.drain(..3).collect());
        assert!(new[0] == 0 || old.token().await.is_err());
    }
}

/// Somebody else may have written such a key.
#[tokio::test]
async fn start_names_the_keys_that_it_skips() {
    let key = "fenced:{no-number}:token";
    let nodes = seven().await;
    nodes.0[1].set(key, "x").await.unwrap();
    let started = init_from(&nodes, &[0, 1, 2], &[3, 4, 5]).await;
    assert_eq!(events(&started)[0]["skipped"], serde_json::json!([key]), "{started:?}");
    let lost = ["--again", &nodes.cluster_of_node(3).await];
    for node in &nodes.0[3..6] {
        node.set(key, "x").await.unwrap();
    }
    retire(&nodes.0[3..6]).await;
    let started = init(&nodes.urls()[3..6], &lost).await;
    assert_eq!(events(&started)[0]["skipped"], serde_json::json!([key]), "{started:?}");
}

/// Each answer takes most of a second, and a connection several.
#[tokio::test]
async fn nodes_of_the_old_cluster_may_take_as_long_to_answer() {
    let nodes = seven().await;
    let mut old = nodes.urls()[..3].to_vec();
    let proxies = nodes.0[..3].iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    for (url, proxy) in old.iter_mut().zip(&proxies) {
        proxy.add(Latency(Duration::from_millis(800)));
        *url = proxy.url("redis");
    }
    let from = old.iter().flat_map(|url| ["--from", url]);
    let from: Vec<_> = from.chain(["--answer-timeout", "5s"]).collect();
    let started = init(&nodes.urls()[3..6], &from).await;
    assert!(started.status.success(), "{started:?}");
    assert!(nodes.counter(3).await >= Some(HIGH + 1));
}

#[tokio::test]
async fn start_from_fewer_than_a_majority_of_voters_is_rejected() {
    let mut nodes = seven().await;
    // It restarted, and votes no more; another one is down.
    nodes.0[0].restart().await.unwrap();
    nodes.0[1].process().kill().unwrap();
    let rejected = init_from(&nodes, &[0, 1, 2], &[2, 3, 4, 5, 6]).await;
    assert_failed(&rejected, 69, "2 of the 3 voters must give their counters, and 1 can");
    assert_eq!(nodes.counter(3).await, None);
}

/// As it is after a crash in the middle: some nodes of the old cluster have no vote any more, and some of
/// the new one are prepared.
#[tokio::test]
async fn start_from_another_cluster_can_be_repeated() {
    let nodes = seven().await;
    let new = [0, 1, 2, 3, 4];
    assert!(init_from(&nodes, &[0, 1, 2], &new).await.status.success());
    assert_eq!(retired(&nodes.0[0]).await, None, "it was admitted");

    let nodes = seven().await;
    retire(&nodes.0[..2]).await;
    assert!(init(&nodes.urls()[3..6], &[]).await.status.success());
    leave_prepared(&nodes.0[3..6]).await;
    // Another start would admit them with their counters, and the others without.
    assert_failed(&init_from(&nodes, &[], &new).await, 69, "with the same options");
    assert_failed(&init(&nodes.urls()[..3], &[]).await, 69, "with the same options");
    assert_eq!(nodes.counter(3).await, None);
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["retired", "retired", "voting"]);
    let started = init_from(&nodes, &[0, 1, 2], &new).await;
    assert!(started.status.success(), "{started:?}");
    for node in new {
        assert!(nodes.counter(node).await >= Some(HIGH + 1), "node {node}");
    }
}

/// Has nodes give up their votes, as a start does before it waits.
async fn retire(nodes: &[Redis]) {
    for node in nodes {
        let retired = to_be_retired(node).await;
        node.command::<()>(&["HSET", "fenced:node", "retired", &retired]).await.unwrap();
        node.command::<()>(&["HDEL", "fenced:node", "vote"]).await.unwrap();
    }
}

/// Has nodes of a new cluster be as a start leaves them that is interrupted before it admits any.
pub(super) async fn leave_prepared(nodes: &[Redis]) {
    for node in nodes {
        assert_eq!(node.command::<u8>(&["HDEL", "fenced:node", "vote"]).await.unwrap(), 1);
    }
}

/// The same with one that has voted in an earlier cluster. Its data are as `retire` left them.
pub(super) async fn leave_prepared_again(node: &Redis, retired: &str) {
    leave_prepared(slice::from_ref(node)).await;
    node.command::<()>(&["HSET", "fenced:node", "retired", retired]).await.unwrap();
}

pub(super) async fn retired(node: &Redis) -> Option<String> {
    node.command(&["HGET", "fenced:node", "retired"]).await.unwrap()
}

/// What `retire` will note of a node that votes.
pub(super) async fn to_be_retired(node: &Redis) -> String {
    let roster: String = node.command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    format!("{} {roster}", node.info("run_id").await.unwrap())
}

/// Two of five nodes are prepared for the new cluster. A third one is named as an old node, and is down.
#[tokio::test]
async fn start_from_nodes_that_are_prepared_finds_the_other_voters() {
    let mut nodes = Nodes::start(6, &[]).await;
    assert!(init(&nodes.urls()[..5], &[]).await.status.success());
    nodes.0[2].process().kill().unwrap();
    let votes = [to_be_retired(&nodes.0[0]).await, to_be_retired(&nodes.0[1]).await];
    let (old, new) = ([0, 1, 2], [0, 1, 5]);
    assert!(init_from(&nodes, &old, &new).await.status.success());
    leave_prepared(&nodes.0[5..]).await;
    for (node, vote) in nodes.0.iter().zip(&votes) {
        leave_prepared_again(node, vote).await;
    }
    for node in &nodes.0[3..5] {
        assert!(retired(node).await.is_some(), "the start took its vote");
    }
    nodes.0[3].set("fenced:{r}:token", &HIGH.to_string()).await.unwrap();
    let started = init_from(&nodes, &old, &new).await;
    assert!(started.status.success(), "{started:?}");
    for node in new {
        assert!(nodes.counter(node).await >= Some(HIGH), "node {node}");
    }
}

/// No vote is taken from a cluster before it is known that all nodes may be used.
#[tokio::test]
async fn start_takes_no_vote_if_a_node_belongs_to_another_cluster() {
    let nodes = seven().await;
    assert!(init(&nodes.urls()[4..], &[]).await.status.success());
    let rejected = init_from(&nodes, &[0, 1, 2], &[0, 1, 2, 3, 4]).await;
    assert_failed(
        &rejected,
        69,
        "a cluster can only be started on nodes that belong to no cluster",
    );
    let urls = nodes.urls();
    let again = [urls[1].clone(), urls[3].clone(), urls[4].clone()];
    let lost = ["--again", &nodes.cluster_of_node(1).await];
    assert_failed(&init(&again, &lost).await, 64, "a majority of the nodes may vote");
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["voting"; 3]);
    assert_eq!(nodes.states_of(&[4, 5, 6]).await, ["voting"; 3]);
}

/// The servers that are named as the old cluster's are of two.
#[tokio::test]
async fn start_from_servers_of_two_clusters_takes_no_vote() {
    let nodes = Nodes::start(10, &[]).await;
    let urls = nodes.urls();
    for cluster in [0..3, 3..6] {
        assert!(init(&urls[cluster], &[]).await.status.success());
    }
    let from = ["--from", &urls[0], "--from", &urls[9], "--from", &urls[3]];
    let rejected = init(&urls[6..9], &from).await;
    assert_failed(&rejected, 64, "these servers belong to 2 clusters");
    for cluster in [[0, 1, 2], [3, 4, 5]] {
        assert_eq!(nodes.states_of(&cluster).await, ["voting"; 3]);
    }
}

/// The nodes of a start that replaces nothing have no counters of the old cluster.
#[tokio::test]
async fn start_from_another_cluster_completes_no_start_without_its_counters() {
    let nodes = seven().await;
    assert!(init(&nodes.urls()[3..6], &[]).await.status.success());
    leave_prepared(&nodes.0[4..6]).await;
    let rejected = init_from(&nodes, &[0, 1, 2], &[3, 4, 5]).await;
    assert_failed(
        &rejected,
        69,
        "a cluster can only be started on nodes that belong to no cluster",
    );
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["voting"; 3]);
    // The control: a start that copied them is completed, without another wait.
    let nodes = seven().await;
    assert!(init_from(&nodes, &[0, 1, 2], &[3, 4, 5]).await.status.success());
    leave_prepared(&nodes.0[4..6]).await;
    let cluster = nodes.cluster_of_node(3).await;
    let completed = init_from(&nodes, &[0, 1, 2], &[3, 4, 5]).await;
    assert!(completed.status.success(), "{completed:?}");
    assert_eq!(events(&completed)[0]["cluster"], cluster);
    assert_eq!(nodes.counter(5).await, Some(HIGH + 1));
}

/// A node becomes a member of another cluster during the wait, and restarts there.
#[tokio::test]
async fn nodes_are_looked_at_again_after_the_wait() {
    let nodes = seven().await;
    let starting = init_from(&nodes, &[0, 1, 2], &[2, 3, 4]);
    let joining = async {
        until_async(PATIENCE, async || Ok(retired(&nodes.0[0]).await.is_some())).await.unwrap();
        assert!(init(&nodes.urls()[4..], &[]).await.status.success());
        let (node, record) = (&nodes.0[4], "fenced:node");
        let roster: String = node.command(&["HGET", record, "roster"]).await.unwrap();
        let before = roster.replace(&node.info("run_id").await.unwrap(), "before");
        node.command::<()>(&["HSET", record, "roster", &before]).await.unwrap();
        node.command::<()>(&["HDEL", record, "vote"]).await.unwrap();
        before
    };
    let (rejected, before) = tokio::join!(starting, joining);
    assert_failed(
        &rejected,
        69,
        "a cluster can only be started on nodes that belong to no cluster",
    );
    let roster: String = nodes.0[4].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    assert_eq!(roster, before);
}

/// The two clusters have three nodes in common. A node that was admitted knows the new one alone.
#[tokio::test]
async fn start_on_common_nodes_is_completed_however_many_it_has_admitted() {
    for admitted in [2, 4, 5] {
        let nodes = seven().await;
        let mut votes = Vec::new();
        for node in &nodes.0[..3] {
            votes.push(to_be_retired(node).await);
        }
        let (old, new) = ([0, 1, 2], [0, 1, 2, 3, 4]);
        assert!(init_from(&nodes, &old, &new).await.status.success());
        let cluster = nodes.cluster_of_node(0).await;
        for node in admitted..5 {
            match votes.get(node) {
                Some(vote) => leave_prepared_again(&nodes.0[node], vote).await,
                None => leave_prepared(&nodes.0[node..=node]).await,
            }
        }
        let completed = init_from(&nodes, &old, &new).await;
        assert!(completed.status.success(), "after {admitted}: {completed:?}");
        assert_eq!(events(&completed)[0]["cluster"], cluster, "after {admitted}");
        assert_eq!(nodes.states_of(&new).await, ["voting"; 5], "after {admitted}");
    }
}

/// A tool that sets up servers repeats the command, after a node has restarted and was admitted.
#[tokio::test]
async fn start_that_has_ended_takes_no_vote_when_it_is_repeated() {
    let mut nodes = seven().await;
    let (old, new) = ([0, 1, 2], [0, 1, 2, 3, 4]);
    assert!(init_from(&nodes, &old, &new).await.status.success());
    nodes.0[4].restart().await.unwrap();
    let urls = nodes.urls();
    let admit = ["node", "admit", "--locks", &urls[..5].join(" "), "--node", &urls[4]];
    let admitted = lock_client(&admit).await;
    assert!(admitted.status.success(), "{admitted:?}");
    assert_failed(&init_from(&nodes, &old, &new).await, 64, "are cluster");
    assert_eq!(nodes.states_of(&new).await, ["voting"; 5]);
}

/// Somebody else replaces the old cluster during the wait, and takes the votes of that one.
#[tokio::test]
async fn cluster_that_came_during_the_wait_is_not_replaced_without_another() {
    let nodes = seven().await;
    let starting = init_from(&nodes, &[0, 1, 2], &[3, 4, 5]);
    let replacing = async {
        until_async(PATIENCE, async || Ok(retired(&nodes.0[2]).await.is_some())).await.unwrap();
        for node in &nodes.0[..3] {
            node.command::<()>(&["FLUSHALL"]).await.unwrap();
        }
        assert!(init(&nodes.urls()[..3], &[]).await.status.success());
        retire(&nodes.0[..3]).await;
    };
    let (rejected, ()) = tokio::join!(starting, replacing);
    assert_failed(&rejected, 69, "with the same options");
    assert_eq!(nodes.fields(3).await, [""; 0]);
}
