//! Clients that follow a change, and those that need not.

use std::time::{Duration, Instant};

use fence::Holder;
use futures_util::future::{join_all, try_join_all};
use lock_client::{
    AcquireError, Locks, Order, Terms,
    backend::{Attempt, Backend},
    redlock::{Redlock, operator::Operator},
};
use testbed::{
    NodeKind, Proxy, Redis, RedlockNodes,
    proxy::{Latency, Rule, Verdict},
    wait::until_async,
};
use tokio::time::{sleep, timeout};

use super::{MAX_TTL, PATIENCE, TTL, client, half_done::close_half, nodes, replace, token, urls};
use crate::{
    lock_service::{channels, tried, ttl},
    names::name,
    redlock::cluster::{cluster_of, records_read},
};

/// A cluster of five, in which one node has missed a change and still votes for the first roster.
struct NodeBehind {
    nodes: RedlockNodes,
    /// Before the node that is behind, at the address that the members know.
    proxy: Proxy,
    members: Vec<String>,
}

impl NodeBehind {
    /// Node 5 replaces node 1, which is gone, and node 2 misses it.
    async fn start() -> Self {
        let mut nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 6]).await.unwrap();
        let proxy = Proxy::start(nodes.nodes()[2].socket()).await.unwrap();
        let mut members = urls(&nodes, &[0, 1, 2, 3, 4]);
        members[2] = proxy.url("redis");
        let operator = Operator::new(&members).unwrap();
        operator.start_cluster(ttl(TTL)).await.unwrap();
        nodes.nodes_mut()[1].process().kill().unwrap();
        nodes.nodes_mut()[2].process().pause().await.unwrap();
        let added = nodes.nodes()[5].url();
        operator.admit(&added, Some(&members[1]), drop).await.unwrap();
        nodes.nodes_mut()[2].process().resume().unwrap();
        members[1] = added;
        Self { nodes, proxy, members }
    }

    fn client(&self) -> Locks {
        Locks::new(Redlock::open(&self.members).unwrap())
    }
}

/// Tries to acquire a lock once, without repetition. Returns whether it was acquired.
async fn try_once(redlock: &Redlock, lock: &str) -> bool {
    let (lock, holder) = (name(lock), Holder::random());
    redlock.try_acquire(&lock, &holder, ttl(TTL), Order::Unordered).await.is_ok()
}

/// No roster has a majority: node 1 has closed its term, and node 2 answers nothing.
async fn half_changed() -> (RedlockNodes, Redlock) {
    let mut nodes = nodes(4, 3).await;
    let redlock = Redlock::open(urls(&nodes, &[0, 1, 2])).unwrap();
    assert!(try_once(&redlock, "before").await);
    close_half(&nodes, 1, [0, 3]).await;
    nodes.nodes_mut()[2].process().pause().await.unwrap();
    (nodes, redlock)
}

/// An error such as that of a wrong ttl is no sign of a change.
#[tokio::test]
async fn node_that_missed_a_change_has_no_client_search_for_another() {
    let cluster = NodeBehind::start().await;
    let (nodes, locks) = (&cluster.nodes, cluster.client());
    assert!(token(&locks).await.is_ok());
    let before = records_read(&nodes.nodes()[0]).await;
    for _ in 0..5 {
        let too_long = u64::try_from(MAX_TTL.as_millis()).unwrap() + 1;
        let error = locks.acquire(&name("r"), tried(too_long)).await.unwrap_err();
        assert!(matches!(error, AcquireError::Invalid { .. }), "{error:?}");
    }
    assert_eq!(records_read(&nodes.nodes()[0]).await, before);
    // A client that has to know of a change searches once.
    assert!(token(&client(nodes, &[0, 1, 3])).await.is_ok());
    assert!(records_read(&nodes.nodes()[0]).await > before);
}

#[tokio::test]
async fn steps_that_fail_together_search_for_a_change_together() {
    const STEPS: u64 = 12;
    let (nodes, redlock) = half_changed().await;
    let before = records_read(&nodes.nodes()[0]).await;
    let steps = (0..STEPS).map(|step| {
        let redlock = redlock.clone();
        async move { try_once(&redlock, &format!("r/{step}")).await }
    });
    assert_eq!(join_all(steps).await, [false; STEPS as usize]);
    let searches = records_read(&nodes.nodes()[0]).await - before;
    // Steps that fail during a search share the next one.
    assert!((1..=3).contains(&searches), "{searches} searches for {STEPS} steps");
}

/// The members are unknown, because nodes 0 and 1 name different ones and node 2 is down.
#[tokio::test]
async fn new_client_searches_once_in_a_step_that_fails() {
    const CLIENTS: u64 = 5;
    let mut nodes = nodes(4, 3).await;
    close_half(&nodes, 1, [0, 3]).await;
    nodes.nodes_mut()[2].process().kill().unwrap();
    let before = records_read(&nodes.nodes()[0]).await;
    for _ in 0..CLIENTS {
        let redlock = Redlock::open(urls(&nodes, &[0, 1, 2])).unwrap();
        assert!(!try_once(&redlock, "r").await);
    }
    let read = records_read(&nodes.nodes()[0]).await - before;
    assert_eq!(read, CLIENTS);
}

/// Accepts connections, and answers nothing else.
#[derive(Debug)]
struct Mute;

impl Rule for Mute {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        match String::from_utf8_lossy(request).contains("SETINFO") {
            true => Verdict::Pass,
            false => Verdict::DelayReply(PATIENCE),
        }
    }
}

/// A renewal that takes longer delays the next one, until the lease is lost.
#[tokio::test]
async fn search_without_a_majority_does_not_wait_for_a_server_that_hangs() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 4]).await.unwrap();
    let proxy = Proxy::start(nodes.nodes()[2].socket()).await.unwrap();
    let members = [urls(&nodes, &[0, 1]), vec![proxy.url("redis")]].concat();
    Operator::new(&members).unwrap().start_cluster(ttl(TTL)).await.unwrap();
    let redlock = Redlock::open(members).unwrap();
    let (r, holder) = (name("r"), Holder::random());
    let granted = redlock.try_acquire(&r, &holder, ttl(TTL), Order::Unordered).await.unwrap();
    let Attempt::Granted { ownership, .. } = granted else { panic!("{granted:?}") };
    close_half(&nodes, 1, [2, 3]).await;
    proxy.add(Mute);
    let limit = redlock.answer_timeout() * 9;
    let renewed = timeout(limit, redlock.renew(&r, &ownership, ttl(TTL))).await;
    renewed.expect("it has ended by itself").unwrap_err();
}

/// The node is far away, so that a new connection to it takes long.
#[tokio::test]
async fn acquire_does_not_wait_for_a_new_connection_to_a_node_that_is_behind() {
    let cluster = NodeBehind::start().await;
    cluster.proxy.add(Latency(Duration::from_millis(600)));
    let redlock = Redlock::open(&cluster.members).unwrap();
    let locks = Locks::new(redlock.answer_within(Duration::from_secs(5)));
    assert!(token(&locks).await.is_ok());
    let (mut took, mut leases) = (Vec::new(), Vec::new());
    for round in 0..9 {
        // Longer than a connection to such a node is used.
        sleep(Duration::from_millis(300)).await;
        // The first finds that the node is still behind, and the second may ask it again.
        for lock in ["first", "second"] {
            let asked = Instant::now();
            let lock = name(&format!("{lock}/{round}"));
            leases.push(locks.acquire(&lock, tried(TTL)).await.unwrap());
            took.push(asked.elapsed());
        }
    }
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_millis(300), "{took:?}");
}

/// Each record arrives late.
#[derive(Debug)]
struct SlowRecord;

impl Rule for SlowRecord {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        match String::from_utf8_lossy(request).contains("HMGET") {
            true => Verdict::DelayReply(Duration::from_millis(300)),
            false => Verdict::Pass,
        }
    }
}

/// A search takes longer than each of them waits.
#[tokio::test]
async fn callers_that_stop_waiting_follow_a_change_in_the_end() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 4]).await.unwrap();
    let mut proxies = Vec::new();
    for node in &nodes.nodes()[..3] {
        proxies.push(Proxy::start(node.socket()).await.unwrap());
    }
    let members: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    let operator = Operator::new(&members).unwrap();
    operator.start_cluster(ttl(TTL)).await.unwrap();
    let redlock = Redlock::open(&members).unwrap();
    assert!(try_once(&redlock, "before").await);
    operator.admit(&nodes.nodes()[3].url(), Some(&members[0]), drop).await.unwrap();
    for proxy in &proxies {
        proxy.add(SlowRecord);
    }
    let impatient = async || {
        let tried = timeout(Duration::from_millis(150), try_once(&redlock, "r")).await;
        Ok(tried == Ok(true))
    };
    until_async(Duration::from_secs(10), impatient).await.unwrap();
}

#[tokio::test]
async fn waiter_listens_to_the_new_members_after_a_change() {
    let nodes = nodes(5, 3).await;
    let waiter = Redlock::open(urls(&nodes, &[0, 1, 2])).unwrap();
    assert!(try_once(&waiter, "other").await);
    let (r, holder) = (name("r"), Holder::random());
    let wakeups = waiter.subscribe(&r, &holder, Order::Unordered).await.unwrap();
    replace(&nodes, &[0, 1, 2], [0, 3]).await.unwrap();
    replace(&nodes, &[3, 1, 2], [1, 4]).await.unwrap();
    // Any step makes the client follow.
    assert!(try_once(&waiter, "another").await);
    for node in &nodes.nodes()[2..] {
        until_async(PATIENCE, async || Ok(channels(node).await? == 1)).await.unwrap();
    }
    // The first notification may be that of the change: a release may have been missed meanwhile.
    let rival = client(&nodes, &[2, 3, 4]);
    for release in 0..3 {
        token(&rival).await.unwrap();
        let notified = timeout(PATIENCE, wakeups.next()).await;
        assert!(notified.is_ok(), "of release {release}");
    }
}

/// The removed nodes still run, and know no lock.
#[tokio::test]
async fn status_is_that_of_the_new_members_after_a_change() {
    let nodes = nodes(6, 3).await;
    let watcher = client(&nodes, &[0, 1, 2]);
    assert_eq!(watcher.status(&name("r")).await.unwrap().held, None);
    for step in 0..3 {
        replace(&nodes, &[step, step + 1, step + 2], [step, step + 3]).await.unwrap();
    }
    let locks = client(&nodes, &[3, 4, 5]);
    let lease = locks.acquire(&name("r"), tried(TTL)).await.unwrap();
    let held = watcher.status(&name("r")).await.unwrap().held;
    assert_eq!(held.map(|held| held.token), Some(lease.token().unwrap()));
    lease.release().await.unwrap();
}

/// A client that has guessed which of two late proxies leads to which member.
async fn wrong_guess() -> (RedlockNodes, Vec<Proxy>, Locks) {
    let cluster = cluster_of(5).await;
    let proxies = cluster.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    proxies[3..].iter().for_each(Proxy::cut);
    let urls = [0, 1, 2, 4, 3].map(|node: usize| proxies[node].url("redis"));
    (cluster, proxies, Locks::new(Redlock::open(urls).unwrap()))
}

/// Otherwise a lease would count on three of five nodes for ever.
#[tokio::test]
async fn client_behind_proxies_that_answer_late_finds_their_members() {
    let (_cluster, proxies, locks) = wrong_guess().await;
    let r = name("r");
    let lease = locks.acquire(&r, Terms::new(ttl(3_000))).await.unwrap();

    proxies[3..].iter().for_each(Proxy::mend);
    let counts_on_all = async || {
        let held = locks.status(&r).await?.held;
        Ok(held.is_some_and(|held| held.nodes == Some(5)))
    };
    until_async(PATIENCE, counts_on_all).await.unwrap();
    lease.release().await.unwrap();
}

/// There is no majority without the members whose servers it has guessed wrong.
#[tokio::test]
async fn client_that_guesses_another_members_server_finds_the_right_one_when_it_needs_it() {
    let (cluster, proxies, locks) = wrong_guess().await;
    assert!(token(&locks).await.is_ok());
    for node in &cluster.nodes()[..2] {
        node.command::<()>(&["RENAME", "fenced:node", "aside"]).await.unwrap();
    }
    proxies[3..].iter().for_each(Proxy::mend);
    // It connects to a server that failed after a pause.
    until_async(PATIENCE, async || Ok(token(&locks).await.is_ok())).await.unwrap();
}

/// Two addresses lead to one server. No search finds another one, and each step sees that.
#[tokio::test]
async fn many_steps_begin_one_search_in_the_background() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    let proxies = nodes.nodes().iter().map(Redis::socket).map(Proxy::start);
    let proxies = try_join_all(proxies).await.unwrap();
    let members: Vec<_> = proxies.iter().map(|proxy| proxy.url("redis")).collect();
    Operator::new(&members).unwrap().start_cluster(ttl(TTL)).await.unwrap();
    let redlock = Redlock::open(&members).unwrap();
    assert!(try_once(&redlock, "before").await);
    proxies[0].switch_to(nodes.nodes()[1].socket());
    proxies[0].cut();
    proxies[0].mend();
    let (before, began) = (records_read(&nodes.nodes()[2]).await, Instant::now());
    let mut steps = 0;
    while began.elapsed() < Duration::from_secs(2) {
        steps += 1;
        assert!(try_once(&redlock, &format!("r/{steps}")).await);
        sleep(Duration::from_millis(10)).await;
    }
    let searches = records_read(&nodes.nodes()[2]).await - before;
    assert_eq!(searches, 1, "for {steps} steps");
}
