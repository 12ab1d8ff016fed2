//! A replacement by hand, one step after the other. Each step that is left out has a consequence.
//!
//! Node 1 is replaced by node 3. It does not answer the operator, but it runs, and clients reach
//! it.

use std::time::Duration;

use testbed::{Redis, RedlockNodes};

use super::{HIGH, client, nodes_for, token, token_without};
use crate::{lock_service::unrenewed, names::name, redlock::cluster::COUNTER};

/// The longest ttl, in which all steps of a replacement are done.
const MAX_TTL: u64 = 10_000;

/// The steps of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Close,
    Wait,
    Copy,
    /// The new node is the same process as when the counters were copied.
    SameProcess,
}

/// Writes the vote that follows from a node's record.
const VOTE: &str = "local known = redis.call('HMGET', KEYS[1], 'change', 'run_id')
    redis.call('HSET', KEYS[1], 'vote', known[1] .. ' ' .. known[2])";

/// Starts four nodes, the first three of them as a cluster.
async fn four_nodes() -> RedlockNodes {
    nodes_for(Duration::from_millis(MAX_TTL), 4, 3).await
}

/// Replaces node 1 by node 3. Leaves out one of the steps, or none.
async fn replace(nodes: &mut RedlockNodes, left_out: Option<Step>) {
    let has = |step| left_out != Some(step);
    let [zero, one, two, three] = nodes.nodes() else { panic!("there are four") };
    let address = |node: &Redis| node.socket().display().to_string();
    let new_members = [zero, three, two].map(address).join("\n");
    // Clients count members alone. In an epoch that is not closed, the new node passes for node 1.
    let new_address = address(if has(Step::Close) { three } else { one });
    let known = ["HMGET", "fenced:node", "change", "members"];
    let [change, members]: [String; 2] =
        zero.command::<Vec<_>>(&known).await.unwrap().try_into().unwrap();
    let new_epoch = match has(Step::Close) {
        true => ["epoch", "2", "change", "by-hand", "members", &new_members],
        false => ["epoch", "1", "change", &change, "members", &members],
    };
    let set = async |node: &Redis, fields: &[&str]| {
        node.command::<()>(&[&["HSET", "fenced:node"], fields].concat()).await.unwrap();
        node.command::<()>(&["EVAL", VOTE, "1", "fenced:node"]).await.unwrap();
    };
    if has(Step::Close) {
        for node in [zero, two] {
            set(node, &new_epoch).await;
        }
    }
    if has(Step::Wait) {
        let expired = async || {
            let locks: Vec<String> = two.command(&["KEYS", "*:lock"]).await?;
            Ok(locks.is_empty())
        };
        testbed::wait::until_async(super::PATIENCE, expired).await.unwrap();
    }
    if has(Step::Copy) {
        let counters = [counter(zero).await, counter(two).await];
        let highest = counters.iter().max().unwrap().to_string();
        three.set(COUNTER, &highest).await.unwrap();
    }
    if !has(Step::SameProcess) {
        // The new process has lost what was copied.
        nodes.nodes_mut()[3].restart().await.unwrap();
    }
    let [zero, .., three] = nodes.nodes() else { panic!("there are four") };
    let cluster: Vec<String> = zero.command(&["HMGET", "fenced:node", "cluster"]).await.unwrap();
    let run_id = three.info("run_id").await.unwrap();
    let admitted = [
        ["cluster", &cluster[0]],
        ["max_ttl_ms", &MAX_TTL.to_string()],
        ["address", &new_address],
        ["run_id", &run_id],
    ];
    set(three, &[&new_epoch[..], admitted.as_flattened()].concat()).await;
}

async fn counter(node: &Redis) -> u64 {
    node.command(&["GET", COUNTER]).await.unwrap()
}

/// The tokens before and after a replacement: the first without node 0, the second without node 2.
/// Then the token of a client that names the old members, if there is a majority of them.
async fn tokens(left_out: Option<Step>) -> [Result<u64, String>; 3] {
    let mut nodes = four_nodes().await;
    let (old, new) = (client(&nodes, &[0, 1, 2]), client(&nodes, &[0, 3, 2]));
    let before = token_without(&nodes.nodes()[0], &old).await;
    if left_out == Some(Step::Copy) || left_out == Some(Step::SameProcess) {
        // The release has raised all counters. A node that was cut off has missed that.
        nodes.nodes()[0].set(COUNTER, &HIGH.to_string()).await.unwrap();
    }
    replace(&mut nodes, left_out).await;
    let after = token_without(&nodes.nodes()[2], &new).await;
    [before, after, token_without(&nodes.nodes()[0], &old).await]
}

#[tokio::test]
async fn tokens_grow_if_no_step_is_left_out() {
    let tokens = tokens(None).await;
    assert_eq!(tokens, [Ok(HIGH + 1), Ok(HIGH + 2), Ok(HIGH + 3)]);
}

/// Both clients find a majority that votes for them.
#[tokio::test]
async fn if_the_old_epoch_is_not_closed_a_token_is_issued_twice() {
    let mut nodes = four_nodes().await;
    let (old, new) = (client(&nodes, &[0, 1, 2]), client(&nodes, &[0, 3, 2]));
    replace(&mut nodes, Some(Step::Close)).await;
    let tokens = [
        token_without(&nodes.nodes()[0], &old).await,
        token_without(&nodes.nodes()[2], &new).await,
    ];
    assert_eq!(tokens, [Ok(HIGH + 1), Ok(HIGH + 1)]);
}

#[tokio::test]
async fn if_no_counters_are_copied_a_token_is_issued_twice() {
    let [before, after, _] = tokens(Some(Step::Copy)).await;
    assert_eq!([before, after], [Ok(HIGH + 1), Ok(HIGH + 1)]);
}

/// The new node restarts between the copy and its admission.
#[tokio::test]
async fn if_another_process_is_admitted_than_the_counters_were_copied_to_a_token_is_issued_twice() {
    let [before, after, _] = tokens(Some(Step::SameProcess)).await;
    assert_eq!([before, after], [Ok(HIGH + 1), Ok(HIGH + 1)]);
}

/// Returns whether a second client acquires the lock while the first holds it on nodes 1 and 2.
async fn is_shared(left_out: Option<Step>) -> bool {
    let mut nodes = four_nodes().await;
    let zero = &nodes.nodes()[0];
    let (old, new) = (client(&nodes, &[0, 1, 2]), client(&nodes, &[0, 3, 2]));
    zero.command::<()>(&["RENAME", "fenced:node", "aside"]).await.unwrap();
    let lease = old.acquire(&name("r"), unrenewed(MAX_TTL)).await.unwrap();
    zero.command::<()>(&["RENAME", "aside", "fenced:node"]).await.unwrap();
    replace(&mut nodes, left_out).await;
    let second = token(&new).await;
    second.is_ok() && lease.token().is_ok()
}

#[tokio::test]
async fn if_nobody_waits_two_clients_hold_the_lock() {
    assert!(!is_shared(None).await);
    assert!(is_shared(Some(Step::Wait)).await);
}
