//! A node behind a proxy, which restarts from an old copy.

use std::time::Duration;

use lock_client::{
    Locks, Ttl,
    redlock::{
        Redlock,
        operator::{Operator, State, WatchEvent},
    },
};
use testbed::{NodeKind, Proxy, Redis, RedlockNodes, proxy::ReconnectingProxy, wait::until_async};
use tokio::time::timeout;

use super::cluster::{COUNTER, set_counters};
use crate::{lock_service::tried, names::name, start_cluster::start_cluster};

/// Above every clock: a lost counter starts below this.
const HIGH: u64 = 900_000_000_000_000;

const PATIENCE: Duration = Duration::from_secs(20);

/// A client asks the first node through the proxy and gets a token. The node restarts from a
/// snapshot without it. Returns the token, and what the client gets then.
async fn tokens(nodes: &mut RedlockNodes, proxy: String) -> (u64, Result<u64, String>) {
    let [_, second, third] = nodes.nodes() else { panic!("there are three") };
    let urls = [proxy, second.url(), third.url()];
    let locks = Locks::new(Redlock::open(urls).unwrap());
    nodes.nodes()[0].command::<()>(&["SAVE"]).await.unwrap();
    let first = without_vote(&nodes.nodes()[2], &locks).await.unwrap();
    // It has missed the release, too.
    nodes.nodes()[2].set(COUNTER, &HIGH.to_string()).await.unwrap();
    nodes.nodes_mut()[0].restart().await.unwrap();
    let counter: u64 = nodes.nodes()[0].command(&["GET", COUNTER]).await.unwrap();
    assert_eq!(counter, HIGH, "the copy is older than the token");
    // The client asks a node without a vote again only after a pause.
    until_async(PATIENCE, async || Ok(asks(&locks, &nodes.nodes()[2]).await)).await.unwrap();
    (first, without_vote(&nodes.nodes()[1], &locks).await)
}

/// Whether the client asks this node for its vote. It acquires another lock to see that.
async fn asks(locks: &Locks, node: &Redis) -> bool {
    let Ok(lease) = locks.acquire(&name("s"), tried(60_000)).await else { return false };
    locks.wait_for_background().await;
    let granted: bool = node.command(&["EXISTS", "fenced:{s}:lock"]).await.unwrap();
    lease.release().await.unwrap();
    locks.wait_for_background().await;
    granted
}

/// Acquires and releases the lock while this node has no vote.
async fn without_vote(node: &Redis, locks: &Locks) -> Result<u64, String> {
    let rename = async |from, to| node.command::<()>(&["RENAME", from, to]).await.unwrap();
    rename("fenced:node", "aside").await;
    let token = match locks.acquire(&name("r"), tried(60_000)).await {
        Ok(lease) => {
            let token = lease.token().unwrap().as_u64();
            lease.release().await.unwrap();
            Ok(token)
        }
        Err(error) => Err(crate::lock_service::with_causes(&error)),
    };
    locks.wait_for_background().await;
    rename("aside", "fenced:node").await;
    token
}

async fn cluster() -> RedlockNodes {
    let snapshots = NodeKind::With(&["--save", "3600", "1000"]);
    let kinds = [snapshots, NodeKind::FORGETFUL, NodeKind::FORGETFUL];
    let nodes = RedlockNodes::start(&kinds).await.unwrap();
    start_cluster(&nodes, Duration::from_secs(600)).await;
    set_counters(&nodes, &[HIGH; 3]).await;
    nodes
}

/// The scripts compare the process that the client was connected to with the process in the record.
/// The copy has the old record, and the proxy keeps the client from learning of the restart. So
/// nodes must not be behind such a proxy: `doctor` finds it.
#[tokio::test]
async fn node_behind_a_proxy_that_reconnects_by_itself_issues_a_token_twice() {
    let mut nodes = cluster().await;
    let proxy = ReconnectingProxy::start(nodes.nodes()[0].socket()).await.unwrap();
    let (first, second) = tokens(&mut nodes, proxy.url()).await;
    assert_eq!((first, second), (HIGH + 1, Ok(HIGH + 1)));
}

#[tokio::test]
async fn node_behind_a_proxy_that_ends_connections_has_no_vote_after_a_restart() {
    let mut nodes = cluster().await;
    let proxy = Proxy::start(nodes.nodes()[0].socket()).await.unwrap();
    let (first, second) = tokens(&mut nodes, proxy.url("redis")).await;
    assert_eq!(first, HIGH + 1);
    assert!(second.is_err(), "{second:?}");
}

/// The other members name the node's own address, where it answers as well. `doctor` then would not see
/// the proxy.
#[tokio::test]
async fn member_is_shown_where_it_was_named() {
    let nodes = cluster().await;
    let [first, second, third] = nodes.nodes() else { panic!("there are three") };
    let proxy = Proxy::start(first.socket()).await.unwrap();
    let operator = Operator::new(&[proxy.url("redis"), second.url(), third.url()]).unwrap();
    let inspection = operator.inspect().await;
    assert_eq!(inspection.nodes[0].node, proxy.address().to_string());
}

/// A node that hangs would hold up the trial of each other node.
#[tokio::test]
async fn trial_on_a_node_asks_no_other_node() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    let mut proxies = Vec::new();
    for node in nodes.nodes() {
        proxies.push(Proxy::start(node.socket()).await.unwrap());
    }
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let operator = Operator::new(&urls).unwrap();
    operator.start_cluster(Ttl::new(Duration::from_secs(60)).unwrap()).await.unwrap();
    let asked = || proxies.iter().map(|proxy| proxy.requests("HMGET")).collect::<Vec<_>>();
    let before = asked();
    let node = proxies[1].address().to_string();
    operator.try_lock_on(&node, &name("r"), Ttl::new(PATIENCE).unwrap()).await.unwrap();
    assert_eq!(asked(), [before[0], before[1] + 1, before[2]]);
}

/// A single Redis has another script for the status, with more commands.
#[tokio::test]
async fn trial_runs_the_scripts_of_a_node_and_both_kinds_of_joins() {
    let nodes = cluster().await;
    let (node, operator) = (&nodes.nodes()[0], Operator::new(&nodes.urls()).unwrap());
    node.command::<()>(&["ACL", "SETUSER", "default", "-zcard"]).await.unwrap();
    let address = node.socket().display().to_string();
    operator.try_lock_on(&address, &name("r"), Ttl::new(PATIENCE).unwrap()).await.unwrap();
    let too_long = Ttl::new(Duration::from_secs(3_600)).unwrap();
    let rejected = operator.try_lock_on(&address, &name("r"), too_long).await.unwrap_err();
    assert!(rejected.contains("grants no ttl as long as"), "{rejected}");
    let locks: Vec<String> = node.command(&["KEYS", "*:lock"]).await.unwrap();
    assert!(locks.is_empty(), "{locks:?}");
    // The grant, the reissue, a join with a grant of its own, and one that raises the counter.
    let counter: u64 = node.command(&["GET", COUNTER]).await.unwrap();
    assert_eq!(counter, HIGH + 4);
}

/// Its record says that it is the member. The member itself answers at its address, and two
/// processes that vote as one member would be two voters.
#[tokio::test]
async fn copy_of_a_member_is_not_admitted_while_the_member_answers() {
    let mut nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    start_cluster(&nodes, Duration::from_millis(500)).await;
    let copy = Redis::replica_of(&nodes.nodes()[0]).await.unwrap();
    copy.catch_up(&nodes.nodes()[0]).await.unwrap();
    copy.promote().await.unwrap();
    nodes.nodes_mut()[0].restart().await.unwrap();
    let [first, second, third] = nodes.urls().try_into().unwrap();
    let operator = Operator::new(&[copy.redis().url(), second, third]).unwrap();
    until_admitted(&operator).await;
    let seen = operator.inspect().await;
    assert_eq!((seen.cluster.nodes, seen.cluster.voting), (3, 3), "{seen:?}");
    let admitted = seen.nodes.iter().find(|view| first.ends_with(&view.node)).unwrap();
    assert_eq!(admitted.state, State::Voting);
    let copied = seen.nodes.iter().find(|view| copy.redis().url().ends_with(&view.node)).unwrap();
    assert_eq!(copied.state, State::NotAMember);
}

/// The member may only be out of the operator's reach, and still vote.
#[tokio::test]
async fn copy_of_a_member_is_not_admitted_while_the_member_is_silent() {
    let mut nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    start_cluster(&nodes, Duration::from_millis(500)).await;
    let copy = Redis::replica_of(&nodes.nodes()[0]).await.unwrap();
    copy.catch_up(&nodes.nodes()[0]).await.unwrap();
    copy.promote().await.unwrap();
    let [_, second, third] = nodes.urls().try_into().unwrap();
    let operator = Operator::new(&[copy.redis().url(), second, third]).unwrap();
    nodes.nodes_mut()[0].process().pause().await.unwrap();
    let requested = operator.admit(&copy.redis().url(), None, drop).await;
    nodes.nodes_mut()[0].process().resume().unwrap();
    let requested = requested.unwrap_err().to_string();
    assert!(requested.contains("no member"), "{requested}");
}

/// Waits until a node is admitted.
async fn until_admitted(operator: &Operator) {
    let mut watcher = operator.watch();
    let admitted = async {
        loop {
            if let WatchEvent::Admitted { .. } = watcher.next().await {
                return;
            }
        }
    };
    timeout(PATIENCE, admitted).await.unwrap();
}
