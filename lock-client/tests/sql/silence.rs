//! Connections that fall silent, and tries that are carried out late: in PostgreSQL and in MariaDB.

use std::time::Duration;

use anyhow::{Context, ensure};
use fence::Holder;
use lock_client::{
    Locks, Order,
    backend::{Attempt, Backend},
};
use testbed::{Proxy, wait::until_async};
use tokio::time::{sleep, timeout};

use super::{
    SOON, granted,
    servers::{BY_DEFAULT, PATIENTLY, Server, on_both},
};
use crate::{
    lock_service::{ttl, unrenewed},
    names::name,
};

on_both! {
    connection_that_is_silent_is_replaced_each_time
    waiter_whose_connections_fall_silent_tries_again
    try_that_arrives_late_is_released
    idle_connection_replaces_the_one_for_held_locks
    background_includes_a_try_that_the_server_carries_out_late
}

/// A network forgets one connection after the other, and no end notices.
async fn connection_that_is_silent_is_replaced_each_time<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&server.url_over(proxy.address()), BY_DEFAULT);
    let (token, ownership) = granted(&client, "kept", &Holder::random(), 600_000).await?;
    let mut forgotten = Vec::new();
    for round in 0..5 {
        forgotten.push(proxy.hold("renew("));
        let renew = async || client.renew(&name("kept"), &ownership, ttl(600_000)).await;
        let is_renewed = async || Ok(renew().await.is_ok_and(|renewed| renewed == Some(token)));
        until_async(SOON, is_renewed).await.with_context(|| format!("round {round}"))?;
    }
    ensure!(proxy.has_struck());
    Ok(())
}

/// The same for a client that holds nothing: no lock is granted to it or renewed.
async fn waiter_whose_connections_fall_silent_tries_again<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let holder = S::open(&server.url(), PATIENTLY);
    granted(&holder, "awaited", &Holder::random(), 600_000).await?;
    let proxy = Proxy::start(server.socket()).await?;
    let waiter = S::open(&server.url_over(proxy.address()), BY_DEFAULT);
    let (lock, own) = (name("awaited"), Holder::random());
    let tried = async || waiter.try_acquire(&lock, &own, ttl(60_000), Order::Unordered).await;
    let mut forgotten = Vec::new();
    for round in 0..5 {
        forgotten.push(proxy.hold("acquire("));
        let is_answered = async || Ok(matches!(tried().await, Ok(Attempt::Busy(_))));
        until_async(SOON, is_answered).await.with_context(|| format!("round {round}"))?;
    }
    ensure!(proxy.has_struck());
    Ok(())
}

/// The network delays a try. Its client has given it up, and uses another connection for long.
async fn try_that_arrives_late_is_released<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&server.url_over(proxy.address()), BY_DEFAULT);
    let (lock, holder) = (name("late"), Holder::random());
    let delayed = proxy.hold("acquire(");
    let tried = client.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await;
    ensure!(tried.is_err(), "{tried:?}");
    let delayed = delayed.caught().await?;
    ensure!(client.release(&lock, &holder, None).await.is_err(), "the try is under way");
    let (token, ownership) = granted(&client, "other", &Holder::random(), 600_000).await?;
    for _ in 0..20 {
        ensure!(client.renew(&name("other"), &ownership, ttl(600_000)).await? == Some(token));
        sleep(BY_DEFAULT / 2).await;
    }
    delayed.deliver();
    let is_undone = async || {
        let status = client.status(&lock).await;
        Ok(status.is_ok_and(|status| status.last_token.is_some() && status.held.is_none()))
    };
    until_async(SOON, is_undone).await.context("nobody releases it")?;
    Ok(())
}

/// Others have all connections that the server has left, and the network forgets the one for held locks.
async fn idle_connection_replaces_the_one_for_held_locks<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&server.url_over(proxy.address()), BY_DEFAULT);
    let (token, ownership) = granted(&client, "kept", &Holder::random(), 600_000).await?;
    // A second connection.
    granted(&client, "other", &Holder::random(), 600_000).await?;
    let _taken = server.take_all().await;
    let _forgotten = proxy.hold("renew(");
    let renew = async || client.renew(&name("kept"), &ownership, ttl(600_000)).await;
    let is_renewed = async || Ok(renew().await.is_ok_and(|renewed| renewed == Some(token)));
    until_async(SOON, is_renewed).await.context("it has no connection")?;
    ensure!(proxy.has_struck());
    Ok(())
}

/// The server is paused for longer than its client repeats a release.
async fn background_includes_a_try_that_the_server_carries_out_late<S: Server>()
-> anyhow::Result<()> {
    let server = S::start().await;
    let lock = name("late");
    let locks = Locks::new(S::open(&server.url(), Duration::from_millis(300)));
    let observer = Locks::new(S::open(&server.url(), PATIENTLY));
    // Both are connected.
    locks.status(&lock).await?;
    observer.status(&lock).await?;
    server.pause().await?;
    ensure!(locks.acquire(&lock, unrenewed(600_000)).await.is_err());
    let ended = timeout(Duration::from_secs(4), locks.wait_for_background()).await;
    ensure!(ended.is_err(), "the try is still under way");
    server.resume()?;
    timeout(SOON, locks.wait_for_background()).await?;
    let status = observer.status(&lock).await?;
    ensure!(status.held.is_none() && status.last_token.is_some(), "{status:?}");
    Ok(())
}
