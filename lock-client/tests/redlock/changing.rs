//! Changes of the members: replacement and growth.

mod by_hand;
mod following;
mod half_done;
mod promises;
mod requests;
mod undecided;
mod votes;
mod waits;

use std::time::Duration;

use futures_util::future::join_all;
use lock_client::{
    Locks,
    redlock::{
        Redlock,
        operator::{Operator, OperatorError, State, WatchEvent},
    },
};
use testbed::{NodeKind, Redis, RedlockNodes, wait::until_async};
use tokio::time::timeout;

use super::cluster::COUNTER;
use crate::{
    lock_service::{tried, unrenewed, with_causes},
    names::name,
};

/// Above every clock: a lost counter starts below this.
const HIGH: u64 = 900_000_000_000_000;
/// The longest ttl of the clusters here, for which an admission waits.
const MAX_TTL: Duration = Duration::from_secs(1);
const TTL: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts so many nodes, the first of them as a cluster.
async fn nodes(number: usize, members: usize) -> RedlockNodes {
    nodes_for(MAX_TTL, number, members).await
}

/// The same for this longest ttl.
async fn nodes_for(max_ttl: Duration, number: usize, members: usize) -> RedlockNodes {
    let nodes = RedlockNodes::start(&vec![NodeKind::FORGETFUL; number]).await.unwrap();
    let urls = nodes.urls();
    let operator = Operator::new(&urls[..members]).unwrap();
    operator.start_cluster(lock_client::Ttl::new(max_ttl).unwrap()).await.unwrap();
    for node in &nodes.nodes()[..members] {
        node.set(COUNTER, &HIGH.to_string()).await.unwrap();
    }
    nodes
}

/// The URLs of some nodes.
fn urls(nodes: &RedlockNodes, which: &[usize]) -> Vec<String> {
    which.iter().map(|&node| nodes.nodes()[node].url()).collect()
}

fn client(nodes: &RedlockNodes, which: &[usize]) -> Locks {
    Locks::new(Redlock::open(urls(nodes, which)).unwrap())
}

fn operator(nodes: &RedlockNodes, which: &[usize]) -> Operator {
    Operator::new(&urls(nodes, which)).unwrap()
}

/// Decides on a change, and returns the new members.
async fn decide(
    operator: &mut Operator,
    nodes: &RedlockNodes,
    [add, remove]: [&[usize]; 2],
) -> Result<Vec<String>, OperatorError> {
    operator.change_members(&urls(nodes, add), &urls(nodes, remove)).await
}

/// Changes the members, and waits until those that were added may vote.
async fn change(nodes: &RedlockNodes, members: &[usize], add: &[usize], remove: &[usize]) {
    let mut operator = operator(nodes, members);
    decide(&mut operator, nodes, [add, remove]).await.unwrap();
    until_admitted(&operator, add.len()).await;
}

/// Waits until so many nodes are admitted.
async fn until_admitted(operator: &Operator, number: usize) {
    let mut watcher = operator.watch();
    let admissions = async {
        let mut admitted = 0;
        while admitted < number {
            if let WatchEvent::Admitted { .. } = watcher.next().await.unwrap() {
                admitted += 1;
            }
        }
    };
    timeout(PATIENCE, admissions).await.unwrap();
}

/// Acquires and releases the lock while a node has no vote.
async fn token_without(node: &Redis, locks: &Locks) -> Result<u64, String> {
    let rename = async |from, to| node.command::<()>(&["RENAME", from, to]).await.unwrap();
    rename("fenced:node", "aside").await;
    let token = token(locks).await;
    rename("aside", "fenced:node").await;
    token
}

/// Acquires and releases the lock.
async fn token(locks: &Locks) -> Result<u64, String> {
    let token = match locks.acquire(&name("r"), tried(TTL)).await {
        Ok(lease) => {
            let token = lease.token().unwrap().as_u64();
            lease.release().await.unwrap();
            Ok(token)
        }
        Err(error) => Err(with_causes(&error)),
    };
    locks.wait_for_background().await;
    token
}

/// The tokens of two clients after node 1 was replaced by node 3 and came back: the first client
/// names the old members, and node 0 does not vote for it; the second names the new ones, and node
/// 2 does not vote for it.
async fn tokens_after_a_replacement(nodes: &RedlockNodes) -> [Result<u64, String>; 2] {
    let (old, new) = (client(nodes, &[0, 1, 2]), client(nodes, &[0, 3, 2]));
    let first = token_without(&nodes.nodes()[0], &old).await;
    [first, token_without(&nodes.nodes()[2], &new).await]
}

#[tokio::test]
async fn replaced_node_that_comes_back_issues_no_token_twice() {
    let mut nodes = nodes(4, 3).await;
    nodes.nodes_mut()[1].process().pause().await.unwrap();
    change(&nodes, &[0, 1, 2], &[3], &[1]).await;
    nodes.nodes_mut()[1].process().resume().unwrap();
    assert_eq!(tokens_after_a_replacement(&nodes).await, [Ok(HIGH + 1), Ok(HIGH + 2)]);
}

#[tokio::test]
async fn lease_continues_with_its_token_while_all_members_are_replaced() {
    let nodes = nodes_for(Duration::from_secs(4), 6, 3).await;
    let locks = client(&nodes, &[0, 1, 2]);
    let lease = locks.acquire(&name("r"), tried(4_000)).await.unwrap();
    let issued = lease.token().unwrap();
    for step in 0..3 {
        let members: Vec<_> = (step..step + 3).collect();
        change(&nodes, &members, &[step + 3], &[step]).await;
        // The lease joins the new member with a renewal, and counts it in the next one.
        let joined = async || {
            let held = locks.status(&name("r")).await?.held;
            Ok(held.and_then(|held| held.nodes) == Some(3))
        };
        until_async(PATIENCE, joined).await.unwrap();
        lease.renew().await.unwrap();
        locks.wait_for_background().await;
        assert_eq!(lease.token().unwrap(), issued, "after {} replacements", step + 1);
    }
    assert!(token(&client(&nodes, &[3, 4, 5])).await.is_err());
    lease.release().await.unwrap();
    locks.wait_for_background().await;
    let next = token(&client(&nodes, &[3, 4, 5])).await.unwrap();
    assert!(next > issued.as_u64(), "{next} is above {issued:?}");
}

#[tokio::test]
async fn three_nodes_become_five_and_clients_follow() {
    let mut nodes = nodes_for(Duration::from_secs(4), 5, 3).await;
    let old = client(&nodes, &[0, 1, 2]);
    assert_eq!(token(&old).await, Ok(HIGH + 1));
    change(&nodes, &[0, 1, 2], &[3, 4], &[]).await;
    for client in [&old, &client(&nodes, &[0, 1, 2]), &client(&nodes, &[0, 1, 2, 3, 4])] {
        let lease = client.acquire(&name("held"), unrenewed(4_000)).await.unwrap();
        client.wait_for_background().await;
        // A status may miss a node that is late.
        let is_everywhere = async || {
            let held = client.status(&name("held")).await?.held;
            Ok(held.is_some_and(|held| held.nodes == Some(5)))
        };
        until_async(PATIENCE, is_everywhere).await.unwrap();
        lease.release().await.unwrap();
        client.wait_for_background().await;
    }
    // Two nodes may fail now, also two of the first three.
    for node in &mut nodes.nodes_mut()[..2] {
        node.process().kill().unwrap();
    }
    let issued = token(&old).await.unwrap();
    assert!(issued > HIGH + 1, "{issued}");
    let views = operator(&nodes, &[2, 3, 4]).inspect().await;
    assert_eq!((views.cluster.nodes, views.cluster.voting), (5, 3));
    assert_eq!(views.cluster.epoch, Some(2));
}

#[tokio::test]
async fn member_that_missed_the_change_closes_when_it_answers() {
    let mut nodes = nodes(6, 5).await;
    nodes.nodes_mut()[2].process().pause().await.unwrap();
    decide(&mut operator(&nodes, &[0, 1, 2, 3, 4]), &nodes, [&[5], &[1]]).await.unwrap();
    nodes.nodes_mut()[2].process().resume().unwrap();
    let operator = operator(&nodes, &[0, 2, 3, 4, 5]);
    let states = async || -> Vec<_> {
        operator.inspect().await.nodes.iter().map(|view| view.state).collect()
    };
    use State::{NoCluster, OtherEpoch, Voting};
    assert_eq!(states().await, [Voting, OtherEpoch, Voting, Voting, NoCluster]);
    until_admitted(&operator, 1).await;
    assert_eq!(states().await, [Voting; 5], "node 2 needed no admission");
}

#[tokio::test]
async fn one_of_two_changes_at_once_is_decided() {
    for round in 0..10 {
        let nodes = nodes(5, 3).await;
        let operators = [operator(&nodes, &[0, 1, 2]), operator(&nodes, &[0, 1, 2])];
        let [mut one, mut other] = operators;
        let decided = join_all([
            decide(&mut one, &nodes, [&[3], &[0]]),
            decide(&mut other, &nodes, [&[4], &[1]]),
        ]);
        let decided = decided.await;
        let succeeded: Vec<_> = decided.iter().flatten().collect();
        let records: Vec<Vec<String>> = join_all(nodes.nodes()[..3].iter().map(async |node| {
            node.command(&["HMGET", "fenced:node", "change", "members"]).await.unwrap()
        }))
        .await;
        let epoch: Vec<Option<String>> =
            nodes.nodes()[2].command(&["HMGET", "fenced:node", "epoch"]).await.unwrap();
        // The new node has no vote yet, so that a second change must wait.
        assert_eq!(epoch[0].as_deref(), Some("2"), "in round {round}: {decided:?}");
        assert_eq!(succeeded.len(), 1, "in round {round}: {decided:?}");
        let majority = records.iter().filter(|record| **record == records[2]).count();
        assert!(majority >= 2, "in round {round}: {records:?}");
    }
}

/// The host of a removed member may answer nothing at all, and clients still name it.
#[tokio::test]
async fn client_with_the_old_list_follows_while_the_removed_node_hangs() {
    let mut nodes = nodes(4, 3).await;
    let known = client(&nodes, &[0, 1, 2]);
    assert_eq!(token(&known).await, Ok(HIGH + 1));
    nodes.nodes_mut()[1].process().pause().await.unwrap();
    change(&nodes, &[0, 1, 2], &[3], &[1]).await;
    nodes.nodes_mut()[0].process().pause().await.unwrap();
    assert_eq!(token(&known).await, Ok(HIGH + 2), "by nodes 2 and 3");
    nodes.nodes_mut()[0].process().resume().unwrap();
    assert_eq!(token(&client(&nodes, &[0, 1, 2])).await, Ok(HIGH + 3));
}

/// It is a majority of nobody's cluster: clients that name the members lock elsewhere.
#[tokio::test]
async fn removed_node_that_joined_another_cluster_leads_no_client_there() {
    let mut nodes = nodes(6, 3).await;
    change(&nodes, &[0, 1, 2], &[3], &[2]).await;
    nodes.nodes()[2].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    let other = operator(&nodes, &[2, 4, 5]);
    other.start_cluster(lock_client::Ttl::new(MAX_TTL).unwrap()).await.unwrap();
    nodes.nodes_mut()[0].process().kill().unwrap();
    for _ in 0..4 {
        token(&client(&nodes, &[0, 1, 2])).await.unwrap_err();
    }
    assert!(token(&client(&nodes, &[0, 1, 3])).await.is_ok());
}

/// The added node would wait for voters, and they for it.
#[tokio::test]
async fn change_that_would_leave_no_majority_is_rejected() {
    let mut nodes = nodes(5, 3).await;
    nodes.nodes_mut()[2].process().pause().await.unwrap();
    let [mut one, mut two] = [operator(&nodes, &[0, 1, 2]), operator(&nodes, &[0, 1, 2])];
    for (operator, change) in [(&mut one, [&[3][..], &[1]]), (&mut two, [&[3, 4], &[]])] {
        let error = decide(operator, &nodes, change).await.unwrap_err().to_string();
        assert!(error.contains("of the members that stay must vote"), "{error}");
    }
    assert_eq!(operator(&nodes, &[0, 1, 2]).inspect().await.cluster.epoch, Some(1));
}
