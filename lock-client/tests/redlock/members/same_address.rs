//! Two processes at one address: a name that moved, a forwarder, or a socket that was bound again.

use std::time::Duration;

use fence::Holder;
use futures_util::future::try_join_all;
use lock_client::{
    Locks, Order, Ttl,
    backend::{Attempt, Backend},
    redlock::{
        Redlock,
        operator::{Operator, State, WatchEvent},
    },
};
use testbed::{NodeKind, Proxy, Redis, RedlockNodes, wait::until_async};
use tokio::time::timeout;

use super::{
    HIGH, MAX_TTL, PATIENCE, client, nodes, operator, token, token_without, until_admitted,
};
use crate::names::name;

/// Has a node's address lead to another server, as a name may that somebody has changed. Clients keep
/// the connections that they have.
fn redirect(from: &Redis, to: &Redis) {
    std::fs::rename(from.socket(), from.socket().with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(to.socket(), from.socket()).unwrap();
}

/// The tokens of two clients after an empty server has taken the address of node 0, whose process
/// lives: a client that is connected to the old process, and that node 2 does not vote for; and a new
/// client, that node 1 does not vote for.
async fn tokens(nodes: &RedlockNodes) -> [Result<u64, String>; 2] {
    let connected = client(nodes, &[0, 1, 2]);
    assert_eq!(token(&connected).await, Ok(HIGH + 1));
    redirect(&nodes.nodes()[0], &nodes.nodes()[3]);
    until_admitted(&operator(nodes, &[0, 1, 2]), 1).await;
    let first = token_without(&nodes.nodes()[2], &connected).await;
    [first, token_without(&nodes.nodes()[1], &client(nodes, &[0, 1, 2])).await]
}

#[tokio::test]
async fn empty_server_at_the_address_of_a_process_that_lives_issues_no_token_twice() {
    let nodes = nodes(4, 3).await;
    // A try for the old roster uses tokens, and fails.
    let [first, second] = tokens(&nodes).await.map(|token| token.unwrap());
    assert!(HIGH + 1 < first && first < second, "{first}, {second}");
    let seen = operator(&nodes, &[0, 1, 2]).inspect().await;
    assert_eq!((seen.cluster.voting, seen.cluster.term), (3, Some(2)));
}

/// The old process has a snapshot of its own, and the new one a copy of it.
#[tokio::test]
async fn copy_of_a_members_data_at_its_address_is_another_process() {
    let nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    crate::start_cluster::start_cluster(&nodes, super::MAX_TTL).await;
    let copy = Redis::replica_of(&nodes.nodes()[0]).await.unwrap();
    copy.promote().await.unwrap();
    redirect(&nodes.nodes()[0], copy.redis());
    let rejected = token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await.unwrap_err();
    assert!(rejected.contains("it restarted"), "{rejected}");
    until_admitted(&operator(&nodes, &[0, 1, 2]), 1).await;
    assert!(token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await.is_ok());
}

/// Both are needed, because the third node does not vote.
#[tokio::test]
async fn client_follows_two_nodes_that_swap_their_addresses() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    let proxies = nodes.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let operator = Operator::new(&urls).unwrap();
    operator.start_cluster(Ttl::new(MAX_TTL).unwrap()).await.unwrap();
    let locks = Locks::new(Redlock::open(&urls).unwrap());
    let third = &nodes.nodes()[2];
    let first = token_without(third, &locks).await.unwrap();
    for (proxy, other) in [(0, 1), (1, 0)] {
        proxies[proxy].switch_to(nodes.nodes()[other].socket());
        proxies[proxy].cut();
        proxies[proxy].mend();
    }
    // A node is connected to again after a pause.
    let votes = async || Ok(token_without(third, &locks).await.is_ok());
    until_async(PATIENCE, votes).await.unwrap();
    assert!(token_without(third, &locks).await.unwrap() > first);
}

/// The control: one server that is reached at two addresses has one vote.
#[tokio::test]
async fn two_addresses_that_lead_to_one_server_have_one_vote() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    let proxies = nodes.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let operator = Operator::new(&urls).unwrap();
    operator.start_cluster(Ttl::new(MAX_TTL).unwrap()).await.unwrap();
    let locks = Locks::new(Redlock::open(&urls).unwrap());
    let third = &nodes.nodes()[2];
    assert!(token_without(third, &locks).await.is_ok());
    proxies[0].switch_to(nodes.nodes()[1].socket());
    proxies[0].cut();
    proxies[0].mend();
    for _ in 0..10 {
        let rejected = token_without(third, &locks).await.unwrap_err();
        assert!(rejected.contains("no majority"), "{rejected}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    // The operator and the service count it once, too.
    let seen = operator.inspect().await;
    let states: Vec<_> = seen.nodes.iter().map(|view| view.state).collect();
    assert_eq!(states, [State::Unreachable, State::Voting, State::Voting]);
    assert_eq!(seen.cluster.voting, 2);
    let mut watcher = operator.watch();
    let event = timeout(PATIENCE, watcher.next()).await.unwrap();
    let WatchEvent::LeftAlone { node, reason } = event else { panic!("{event:?}") };
    assert_eq!(node, urls[0].split_once("://").unwrap().1);
    assert_eq!(reason, "another member answers there");
}

/// Nodes 1 and 2 are needed, and only node 1 answers, at two addresses.
#[tokio::test]
async fn release_counts_a_server_once_to_which_two_addresses_lead() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    let proxies = nodes.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let longest = Ttl::new(Duration::from_secs(60)).unwrap();
    Operator::new(&urls).unwrap().start_cluster(longest).await.unwrap();
    let (redlock, r, holder) = (Redlock::open(&urls).unwrap(), name("r"), Holder::random());
    let granted = redlock.try_acquire(&r, &holder, longest, Order::Unordered).await.unwrap();
    let Attempt::Granted { token, ownership, .. } = granted else { panic!("{granted:?}") };
    let clients = async || nodes.nodes()[1].info("connected_clients").await.unwrap().parse::<u8>();
    let before = clients().await.unwrap();
    proxies[0].switch_to(nodes.nodes()[1].socket());
    proxies[0].cut();
    proxies[0].mend();
    let is_connected = async || {
        let _ = redlock.status(&r).await;
        Ok(clients().await? > before)
    };
    until_async(PATIENCE, is_connected).await.unwrap();
    proxies[2].cut();
    let released = redlock.release(&r, &ownership.holder, Some(token)).await;
    assert!(released.is_err(), "{released:?}");
    // The control: with another server.
    proxies[2].mend();
    let released = async || Ok(redlock.release(&r, &ownership.holder, Some(token)).await.is_ok());
    until_async(PATIENCE, released).await.unwrap();
}
