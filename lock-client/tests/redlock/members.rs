//! Other processes that take the seats of members: after a restart, at the same address, or at another.

mod by_hand;
mod following;
mod half_done;
mod requests;
mod same_address;
mod votes;
mod waits;

use std::time::Duration;

use lock_client::{
    Locks,
    redlock::{
        Redlock,
        operator::{CopiedCounters, Operator, OperatorError, State, WatchEvent},
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

/// Puts a server in place of a member, and waits until it votes.
async fn replace(
    nodes: &RedlockNodes,
    members: &[usize],
    [old, new]: [usize; 2],
) -> Result<CopiedCounters, OperatorError> {
    let [old, new] = [old, new].map(|node| nodes.nodes()[node].url());
    operator(nodes, members).admit(&new, Some(&old), drop).await
}

/// Waits until so many nodes are admitted.
async fn until_admitted(operator: &Operator, number: usize) {
    let mut watcher = operator.watch();
    let admissions = async {
        let mut admitted = 0;
        while admitted < number {
            if let WatchEvent::Admitted { .. } = watcher.next().await {
                admitted += 1;
            }
        }
    };
    timeout(PATIENCE, admissions).await.unwrap();
}

/// The states of all members, and then of the other servers that were named.
async fn states(operator: &Operator) -> Vec<State> {
    operator.inspect().await.nodes.iter().map(|view| view.state).collect()
}

/// The roster in a node's data.
async fn roster(node: &Redis) -> Option<String> {
    node.command(&["HGET", "fenced:node", "roster"]).await.unwrap()
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

#[tokio::test]
async fn replaced_node_that_comes_back_issues_no_token_twice() {
    let mut nodes = nodes(4, 3).await;
    nodes.nodes_mut()[1].process().pause().await.unwrap();
    replace(&nodes, &[0, 1, 2], [1, 3]).await.unwrap();
    nodes.nodes_mut()[1].process().resume().unwrap();
    // Node 0 does not vote for the client that names the old members, and node 2 not for the other.
    let (old, new) = (client(&nodes, &[0, 1, 2]), client(&nodes, &[0, 3, 2]));
    let first = token_without(&nodes.nodes()[0], &old).await;
    let second = token_without(&nodes.nodes()[2], &new).await;
    assert_eq!([first, second], [Ok(HIGH + 1), Ok(HIGH + 2)]);
}

#[tokio::test]
async fn lease_continues_with_its_token_while_all_members_are_replaced() {
    let nodes = nodes_for(Duration::from_secs(4), 6, 3).await;
    let locks = client(&nodes, &[0, 1, 2]);
    let lease = locks.acquire(&name("r"), tried(4_000)).await.unwrap();
    let issued = lease.token().unwrap();
    for step in 0..3 {
        let members: Vec<_> = (step..step + 3).collect();
        replace(&nodes, &members, [step, step + 3]).await.unwrap();
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
async fn member_that_missed_terms_takes_the_roster_when_it_answers() {
    let mut nodes = nodes(7, 5).await;
    nodes.nodes_mut()[2].process().pause().await.unwrap();
    // A voter would keep its seat.
    nodes.nodes_mut()[1].process().kill().unwrap();
    replace(&nodes, &[0, 1, 2, 3, 4], [1, 5]).await.unwrap();
    nodes.nodes_mut()[0].process().kill().unwrap();
    replace(&nodes, &[0, 5, 2, 3, 4], [0, 6]).await.unwrap();
    nodes.nodes_mut()[2].process().resume().unwrap();
    let operator = operator(&nodes, &[6, 5, 2, 3, 4]);
    use State::{Behind, Voting};
    assert_eq!(states(&operator).await, [Voting, Voting, Behind, Voting, Voting]);
    let mut watcher = operator.watch();
    let votes = async || Ok(states(&operator).await == [Voting; 5]);
    tokio::select! {
        voted = until_async(PATIENCE, votes) => voted.unwrap(),
        event = async { loop { watcher.next().await; } } => event,
    }
    assert_eq!(operator.inspect().await.cluster.term, Some(3), "it needed no admission");
}

/// Both find the other's server in the middle of its takeover.
#[tokio::test]
async fn one_of_two_servers_takes_a_seat_that_two_operators_give_away_at_once() {
    for round in 0..5 {
        let nodes = nodes(5, 3).await;
        let [one, other] = [[0, 3], [0, 4]].map(|seats| replace(&nodes, &[0, 1, 2], seats));
        let taken = tokio::join!(one, other);
        let admitted = [&taken.0, &taken.1].into_iter().filter(|taken| taken.is_ok()).count();
        assert!(admitted >= 1, "in round {round}: {taken:?}");
        let seen = operator(&nodes, &[1, 2, 3]).inspect().await;
        assert_eq!(seen.cluster.voting, 3, "in round {round}: {seen:?}");
        let rosters = [roster(&nodes.nodes()[1]).await, roster(&nodes.nodes()[2]).await];
        assert_eq!(rosters[0], rosters[1], "in round {round}");
    }
}

/// The host of a replaced member may answer nothing at all, and clients still name it.
#[tokio::test]
async fn client_with_the_old_list_follows_while_the_replaced_node_hangs() {
    let mut nodes = nodes(4, 3).await;
    let known = client(&nodes, &[0, 1, 2]);
    assert_eq!(token(&known).await, Ok(HIGH + 1));
    nodes.nodes_mut()[1].process().pause().await.unwrap();
    replace(&nodes, &[0, 1, 2], [1, 3]).await.unwrap();
    nodes.nodes_mut()[0].process().pause().await.unwrap();
    assert_eq!(token(&known).await, Ok(HIGH + 2), "by nodes 2 and 3");
    nodes.nodes_mut()[0].process().resume().unwrap();
    assert_eq!(token(&client(&nodes, &[0, 1, 2])).await, Ok(HIGH + 3));
}

/// It is a majority of nobody's cluster: clients that name the members lock elsewhere.
#[tokio::test]
async fn replaced_node_that_joined_another_cluster_leads_no_client_there() {
    let mut nodes = nodes(6, 3).await;
    replace(&nodes, &[0, 1, 2], [2, 3]).await.unwrap();
    nodes.nodes()[2].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    let other = operator(&nodes, &[2, 4, 5]);
    other.start_cluster(lock_client::Ttl::new(MAX_TTL).unwrap()).await.unwrap();
    nodes.nodes_mut()[0].process().kill().unwrap();
    for _ in 0..4 {
        token(&client(&nodes, &[0, 1, 2])).await.unwrap_err();
    }
    assert!(token(&client(&nodes, &[0, 1, 3])).await.is_ok());
}

/// Its leases were granted by voters that have given up their votes.
#[tokio::test]
async fn client_of_a_cluster_that_was_started_anew_must_be_restarted() {
    let nodes = nodes(3, 3).await;
    let locks = client(&nodes, &[0, 1, 2]);
    assert!(token(&locks).await.is_ok());
    for node in nodes.nodes() {
        node.command::<()>(&["FLUSHALL"]).await.unwrap();
    }
    let again = operator(&nodes, &[0, 1, 2]);
    again.start_again("none", lock_client::Ttl::new(MAX_TTL).unwrap(), drop).await.unwrap();
    let error = token(&locks).await.unwrap_err();
    assert!(error.contains("if the cluster was started anew, restart this client"), "{error}");
    assert!(token(&client(&nodes, &[0, 1, 2])).await.is_ok());
}

/// A change was begun and left: node 1 holds the roster of the next term, and the majority the present one.
#[tokio::test]
async fn member_with_a_later_roster_is_not_behind() {
    let nodes = nodes(4, 3).await;
    half_done::close_half(&nodes, 1, [0, 3]).await;
    let states = states(&operator(&nodes, &[0, 1, 2])).await;
    assert_eq!(states, [State::Voting, State::Ahead, State::Voting]);
}

/// Nobody could decide the next term.
#[tokio::test]
async fn replacement_that_would_leave_no_majority_changes_nothing() {
    let mut nodes = nodes(4, 3).await;
    nodes.nodes_mut()[2].process().pause().await.unwrap();
    let before = roster(&nodes.nodes()[0]).await;
    let error = replace(&nodes, &[0, 1, 2], [1, 3]).await.unwrap_err().to_string();
    assert!(error.contains("is not admitted yet"), "{error}");
    assert_eq!(roster(&nodes.nodes()[0]).await, before);
    assert_eq!(operator(&nodes, &[0, 1, 2]).inspect().await.cluster.term, Some(1));
    nodes.nodes_mut()[2].process().resume().unwrap();
    assert!(token(&client(&nodes, &[0, 1, 2])).await.is_ok());
}

#[tokio::test]
async fn restarted_node_has_no_lock_of_its_earlier_process() {
    let mut nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    crate::start_cluster::start_cluster(&nodes, MAX_TTL).await;
    let lock = "fenced:{old}:lock";
    nodes.nodes()[0].command::<()>(&["SET", lock, "7 holder"]).await.unwrap();
    nodes.nodes_mut()[0].restart().await.unwrap();
    assert!(
        nodes.nodes()[0].command::<bool>(&["EXISTS", lock]).await.unwrap(),
        "it is in the file"
    );
    until_admitted(&operator(&nodes, &[0, 1, 2]), 1).await;
    assert!(!nodes.nodes()[0].command::<bool>(&["EXISTS", lock]).await.unwrap());
}

#[tokio::test]
async fn lock_is_kept_on_the_members_that_stay() {
    let nodes = nodes_for(Duration::from_secs(10), 4, 3).await;
    let locks = client(&nodes, &[0, 1, 2]);
    let lease = locks.acquire(&name("r"), unrenewed(10_000)).await.unwrap();
    locks.wait_for_background().await;
    let replacing = replace(&nodes, &[0, 1, 2], [1, 3]);
    let closed = async || Ok(operator(&nodes, &[0, 1, 2]).inspect().await.cluster.term == Some(2));
    tokio::select! {
        replaced = replacing => panic!("before the longest ttl: {replaced:?}"),
        closed = until_async(PATIENCE, closed) => closed.unwrap(),
    }
    assert!(token(&client(&nodes, &[0, 3, 2])).await.is_err(), "the lease is held");
    lease.renew().await.unwrap();
    lease.release().await.unwrap();
}
