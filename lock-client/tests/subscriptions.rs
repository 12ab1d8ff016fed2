//! The connection over which all waiters of a client are notified.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fence::Holder;
use lock_client::{
    AcquireError, Locks, Order,
    backend::{Backend, BackendError},
};
use testbed::{Proxy, Redis, proxy::Latency, wait::until};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};

use crate::{
    lock_service::{lasting, locks, until_listening, waiting},
    names::name,
};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn waiters_for_many_locks_subscribe_in_one_round_trip() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let (near, far) = (locks(&redis.url()), locks(&proxy.url("redis")));
    let names: Vec<_> = (0..100).map(|number| name(&format!("r{number}"))).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(near.acquire(name, lasting()).await.unwrap());
    }
    // A round trip for each of them would take 5 seconds.
    proxy.add(Latency(Duration::from_millis(50)));
    let terms = lasting().wait(Duration::from_secs(2));
    let waiters: Vec<_> = names
        .into_iter()
        .map(|name| {
            let far = far.clone();
            tokio::spawn(async move { far.acquire(&name, terms).await })
        })
        .collect();
    for waiter in waiters {
        let busy = waiter.await.unwrap();
        assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    }
    until_listening(&redis, 0).await;
}

#[tokio::test]
async fn rejected_channel_does_not_fail_other_subscriptions() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let rights = ["on", ">secret", "~*", "+@all", "resetchannels", "&fenced:{a}*", "&fenced:{c}*"];
    let user = [&["ACL", "SETUSER", "locker"], &rights[..]].concat();
    let _: String = redis.command(&user).await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url_as("locker", "secret")).unwrap();
    let (names, holder) = (["a", "b", "c"].map(name), Holder::random());
    let subscribe = |name| backend.subscribe(name, &holder, Order::Unordered);
    for _ in 0..2 {
        // They are requested before there is a connection, and then all over it.
        let (a, b, c) =
            tokio::join!(subscribe(&names[0]), subscribe(&names[1]), subscribe(&names[2]));
        assert!(matches!(b, Err(BackendError::Rejected(_))), "{b:?}");
        for (wakeups, channel) in [(a, "fenced:{a}:freed"), (c, "fenced:{c}:freed")] {
            let wakeups = wakeups.unwrap();
            assert_eq!(redis.command::<u64>(&["PUBLISH", channel, ""]).await.unwrap(), 1);
            timeout(SOON, wakeups.next()).await.expect("it is notified");
        }
        until_listening(&redis, 0).await;
    }
}

/// A server that closes each connection at once, and the number of connections so far.
async fn closing_server(address: SocketAddr) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(address).await.unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            drop(connection);
        }
    });
    connections
}

/// Acquires the lock, and leaves it held. For a lock that a client holds itself, it makes a lost connection
/// again.
async fn hold_without_connection(locks: &Locks) {
    locks.acquire(&name("r"), lasting()).await.unwrap().detach().unwrap();
}

#[tokio::test]
async fn waiters_reconnect_ever_less_often() {
    let mut redis = Redis::start_on_tcp(&[]).await.unwrap();
    let locks = locks(&redis.url());
    hold_without_connection(&locks).await;
    let _waiter = waiting(&redis, &locks, lasting().wait(SOON)).await;
    assert_reconnects_ever_less_often(&mut redis).await;
}

#[tokio::test]
async fn holder_reconnects_ever_less_often() {
    let mut redis = Redis::start_on_tcp(&[]).await.unwrap();
    let locks = locks(&redis.url());
    let _held = locks.acquire(&name("r"), lasting()).await.unwrap();
    assert_reconnects_ever_less_often(&mut redis).await;
}

/// In the place of the server, another one closes each connection at once.
async fn assert_reconnects_ever_less_often(redis: &mut Redis) {
    redis.process().kill().unwrap();
    let connections = closing_server(redis.address().unwrap()).await;
    until(SOON, || Ok(connections.load(Ordering::Relaxed) > 0)).await.expect("it reconnects");
    sleep(Duration::from_secs(4)).await;
    let connections = connections.load(Ordering::Relaxed);
    assert!(connections < 20, "{connections} connections");
}

#[tokio::test]
async fn client_without_waiters_does_not_reconnect() {
    let mut redis = Redis::start_on_tcp(&[]).await.unwrap();
    let locks = locks(&redis.url());
    hold_without_connection(&locks).await;
    let waiter = waiting(&redis, &locks, lasting().wait(SOON)).await;
    waiter.abort();
    until_listening(&redis, 0).await;
    redis.process().kill().unwrap();
    let connections = closing_server(redis.address().unwrap()).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(connections.load(Ordering::Relaxed), 0);
    // The control: a request connects.
    locks.status(&name("r")).await.unwrap_err();
    until(SOON, || Ok(connections.load(Ordering::Relaxed) > 0)).await.unwrap();
}
