//! A replacement by hand, one step after the other. Each step that is left out has a consequence.
//!
//! Node 1 is replaced by node 3. It does not answer the operator, but it runs, and clients reach
//! it.

use std::time::Duration;

use testbed::{Redis, RedlockNodes, wait::until_async};

use super::{HIGH, PATIENCE, client, nodes_for, roster, token, token_without};
use crate::{lock_service::unrenewed, names::name, redlock::cluster::COUNTER};

/// The longest ttl, in which all steps of a replacement are done.
const MAX_TTL: u64 = 10_000;

/// The steps of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The second of the two members that stay takes the new roster, too.
    CloseBoth,
    Wait,
    Copy,
    /// The new node is the same process as when the counters were copied.
    SameProcess,
}

/// Has the process that runs it vote for a roster.
const VOTE: &str = concat!(
    include_str!("../../../src/redlock/run_id.lua"),
    "local longest = string.match(ARGV[1], '^%S+ %d+ (%d+)')
    local vote = longest .. ' ' .. run_id() .. ' ' .. redis.sha1hex(ARGV[1])
    redis.call('HSET', KEYS[1], 'roster', ARGV[1], 'vote', vote)"
);

/// Starts four nodes, the first three of them as a cluster.
async fn four_nodes() -> RedlockNodes {
    nodes_for(Duration::from_millis(MAX_TTL), 4, 3).await
}

pub(super) async fn set_roster(node: &Redis, roster: &str) {
    node.command::<()>(&["EVAL", VOTE, "1", "fenced:node", roster]).await.unwrap();
}

/// The roster of term 2, in which node 3 has the second seat.
async fn next_roster(nodes: &RedlockNodes) -> String {
    let first = roster(&nodes.nodes()[0]).await.unwrap();
    let mut lines: Vec<_> = first.lines().map(ToOwned::to_owned).collect();
    lines[0] = lines[0].replacen(" 1 ", " 2 ", 1);
    let three = &nodes.nodes()[3];
    let process = three.info("run_id").await.unwrap();
    lines[2] = format!("2 {process} {}", three.socket().display());
    lines.join("\n")
}

/// Replaces node 1 by node 3. Leaves out one of the steps, or none.
async fn replace(nodes: &mut RedlockNodes, left_out: Option<Step>) {
    let has = |step| left_out != Some(step);
    if has(Step::Copy) {
        let [zero, _, two, three] = nodes.nodes() else { panic!("there are four") };
        let counters = [counter(zero).await, counter(two).await];
        three.set(COUNTER, &counters.iter().max().unwrap().to_string()).await.unwrap();
    }
    if !has(Step::SameProcess) {
        // The new process has lost what was copied.
        nodes.nodes_mut()[3].restart().await.unwrap();
    }
    let next = next_roster(nodes).await;
    let [zero, _, two, three] = nodes.nodes() else { panic!("there are four") };
    set_roster(two, &next).await;
    if has(Step::CloseBoth) {
        set_roster(zero, &next).await;
    }
    if has(Step::Wait) {
        let expired = async || {
            let locks: Vec<String> = two.command(&["KEYS", "*:lock"]).await?;
            Ok(locks.is_empty())
        };
        until_async(PATIENCE, expired).await.unwrap();
    }
    set_roster(three, &next).await;
}

async fn counter(node: &Redis) -> u64 {
    node.command(&["GET", COUNTER]).await.unwrap()
}

/// The tokens before and after a replacement: the first without node 0, the second without node 2.
/// Then the token of a client that names the old members.
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

/// Nodes 0 and 1 are a majority for the old roster, nodes 2 and 3 for the new one.
#[tokio::test]
async fn if_one_member_too_few_closes_two_clients_hold_the_lock_with_one_token() {
    let mut nodes = four_nodes().await;
    let (old, new) = (client(&nodes, &[0, 1, 2]), client(&nodes, &[0, 3, 2]));
    replace(&mut nodes, Some(Step::CloseBoth)).await;
    let mut leases = Vec::new();
    for locks in [old, new] {
        let lease = locks.acquire(&name("r"), unrenewed(MAX_TTL)).await.unwrap();
        assert_eq!(lease.token().unwrap().as_u64(), HIGH + 1);
        leases.push(lease);
    }
    assert!(leases[0].token().is_ok());
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
