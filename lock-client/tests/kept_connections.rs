//! The connections of held locks on Redis. Other clients may have all further ones.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    Order,
    backend::{Attempt, Backend, BackendError, Ownership},
    redis, redlock,
};
use testbed::{NodeKind, Redis, RedisCluster, RedlockNodes, Sentinels, wait::until_async};
use tokio::time::{Instant, sleep};

use crate::{lock_service::ttl, names::name, start_cluster::start_cluster};

const SOON: Duration = Duration::from_secs(20);
const TTL: u64 = 30_000;
/// How often the connection of held locks is checked, and how long it is kept after the last one.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The numbers of the clients' connections to a server.
pub(crate) async fn connections(server: &Redis) -> anyhow::Result<Vec<String>> {
    let list: String = server.command(&["CLIENT", "LIST"]).await?;
    // Not this question, a Sentinel or a replica.
    let others = ["cmd=client|list", "name=sentinel", "flags=S"];
    let is_ours = |line: &&str| !others.iter().any(|other| line.contains(other));
    let number = |line: &str| line.split(['=', ' ']).nth(1).map(str::to_owned);
    Ok(list.lines().filter(is_ours).filter_map(number).collect())
}

/// Cuts them. The next ones may be made at any moment.
async fn cut(servers: &[&Redis]) {
    for server in servers {
        let numbers = connections(server).await.unwrap();
        for number in &numbers {
            let _: u64 = server.command(&["CLIENT", "KILL", "ID", number]).await.unwrap();
        }
        let are_cut = async || {
            let open = connections(server).await?;
            Ok(!numbers.iter().any(|number| open.contains(number)))
        };
        until_async(SOON, are_cut).await.unwrap();
    }
}

async fn until_made_again(servers: &[&Redis]) {
    let are_made = async || {
        for server in servers {
            if connections(server).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    until_async(SOON, are_made).await.expect("no request needs them");
}

/// The first try may find that the connection is lost.
async fn acquired(locks: &dyn Backend) -> Ownership {
    let (r, holder, deadline) = (name("r"), Holder::random(), Instant::now() + SOON);
    loop {
        match locks.try_acquire(&r, &holder, ttl(TTL), Order::Unordered).await {
            Ok(Attempt::Granted { ownership, .. }) => return ownership,
            Err(BackendError::Unavailable(_)) if Instant::now() < deadline => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The lock of a client is held on these servers. Nothing renews it by itself.
async fn assert_kept(locks: &dyn Backend, other: &dyn Backend, servers: &[&Redis]) {
    let r = name("r");
    let lock = acquired(locks).await;
    cut(servers).await;
    until_made_again(servers).await;
    // The control: without a lock, they are not needed.
    assert!(locks.release(&r, &lock.holder, Some(lock.grant)).await.unwrap());
    sleep(2 * CHECK_INTERVAL).await;
    cut(servers).await;
    sleep(2 * CHECK_INTERVAL).await;
    for server in servers {
        assert_eq!(connections(server).await.unwrap(), [""; 0], "nobody needs it");
    }
    // Waiters have used up all connections by the time of the first renewal.
    let lock = acquired(locks).await;
    cut(servers).await;
    until_made_again(servers).await;
    for server in servers {
        let _: String = server.command(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    }
    let token = locks.renew(&r, &lock, ttl(TTL)).await.unwrap().expect("it is still held");
    let reissued = locks.reissue(&r, &lock, token).await.unwrap().expect("it is still held");
    assert!(locks.release(&r, &lock.holder, Some(reissued)).await.unwrap());
    // The control: another client gets no connection.
    other.status(&r).await.unwrap_err();
}

fn client(url: &str) -> redis::Redis {
    redis::Redis::open(url).unwrap().answer_within(Duration::from_secs(5))
}

#[tokio::test]
async fn cut_connection_of_a_held_lock_is_made_again_at_once() {
    let redis = Redis::start().await.unwrap();
    let [locks, other] = [client(&redis.url()), client(&redis.url())];
    assert_kept(&locks, &other, &[&redis]).await;
}

#[tokio::test]
async fn cut_connection_of_a_held_lock_is_made_again_at_once_behind_sentinels() {
    let mut world = Sentinels::start().await.unwrap();
    let [locks, other] = [client(&world.url()), client(&world.url())];
    assert_kept(&locks, &other, &[world.primary()]).await;
}

#[tokio::test]
async fn cut_connections_to_a_cluster_are_made_again_at_once_with_the_third_protocol() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let locks = client(&format!("{}?protocol=resp3", cluster.url()));
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    let lock = acquired(&locks).await;
    cut(&nodes).await;
    until_made_again(&nodes).await;
    for node in &nodes {
        let _: String = node.command(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    }
    assert!(locks.renew(&name("r"), &lock, ttl(TTL)).await.unwrap().is_some());
}

#[tokio::test]
async fn cut_connections_of_a_held_lock_are_made_again_at_once_on_redlock() {
    let cluster = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    start_cluster(&cluster, 2 * SOON).await;
    let client = || {
        let locks = redlock::Redlock::open(cluster.urls()).unwrap();
        locks.answer_within(Duration::from_secs(5))
    };
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    assert_kept(&client(), &client(), &nodes).await;
}

/// The server hangs for longer than a silent connection is kept, and another one can't be made.
#[tokio::test]
async fn connection_of_a_held_lock_is_kept_through_a_hang() {
    let mut redis = Redis::start().await.unwrap();
    let locks = client(&redis.url()).answer_within(Duration::from_millis(200));
    let lock = acquired(&locks).await;
    let _: String = redis.command(&["CONFIG", "SET", "maxclients", "1"]).await.unwrap();
    redis.process().pause().await.unwrap();
    // A silent connection is kept for ten answer time-outs.
    sleep(Duration::from_secs(4)).await;
    redis.process().resume().unwrap();
    let r = name("r");
    let is_renewed = async || Ok(matches!(locks.renew(&r, &lock, ttl(TTL)).await, Ok(Some(_))));
    until_async(SOON, is_renewed).await.unwrap();
    // The control: another client gets no connection.
    client(&redis.url()).status(&r).await.unwrap_err();
}

/// A server may close connections that nobody uses. Then another client may have the place.
#[tokio::test]
async fn connection_of_a_held_lock_is_never_idle() {
    let redis = Redis::start_with(&["--timeout", "4"]).await.unwrap();
    let locks = client(&redis.url());
    let lock = acquired(&locks).await;
    let kept = connections(&redis).await.unwrap();
    assert_eq!(kept.len(), 1);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(connections(&redis).await.unwrap(), kept);
    // The control: without a lock, it is closed.
    assert!(locks.release(&name("r"), &lock.holder, Some(lock.grant)).await.unwrap());
    let is_closed = async || Ok(connections(&redis).await?.is_empty());
    until_async(SOON, is_closed).await.unwrap();
}
