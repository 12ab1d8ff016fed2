//! The connections of a client, and which one is kept for held locks: in PostgreSQL and in MariaDB.

use std::time::Duration;

use anyhow::{Context, ensure};
use fence::Holder;
use lock_client::{Locks, Order, Released, Terms, backend::Backend};
use testbed::{
    Proxy,
    proxy::{Latency, Verdict},
    wait::until_async,
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    SOON, granted, server_without_writes_answers_nothing,
    servers::{BY_DEFAULT, Each, PATIENTLY, Server, on_both},
};
use crate::{
    lock_service::{lasting, tried, ttl, with_causes},
    names::name,
};

on_both! {
    holder_needs_no_free_connection
    holder_outlives_a_pause
    waiter_has_few_connections
    cut_connection_is_made_again_at_once
    release_over_a_cut_connection_says_what_was_true
    release_that_nobody_waits_for_ends_the_checks
    renewal_does_not_wait_behind_many_releases
    server_that_takes_no_writes_is_named_and_tried_again
    detached_lock_keeps_no_connection
    renewal_does_not_keep_a_lock_that_is_detached
    adopted_lock_keeps_a_connection
    failed_adoption_keeps_no_connection
}

/// Others take all connections of the server. A lock that is held is renewed all the same, and released.
async fn holder_needs_no_free_connection<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let locks = server.impatient();
    let lease = locks.acquire(&name("kept"), Terms::new(ttl(4_000)).no_wait()).await?;
    let _taken = server.take_all().await;
    // A new client is rejected, for certain.
    sleep(Duration::from_secs(6)).await;
    lease.token().context("the lease is lost")?;
    // A try needs another connection. It says why there is none, and does not harm the lease.
    let other = locks.acquire(&name("other"), tried(4_000)).await;
    let error = other.err().context("there is no connection left")?;
    ensure!(with_causes(&error).to_lowercase().contains("too many"), "{error:?}");
    // A read needs none.
    let status = locks.status(&name("kept")).await?;
    ensure!(status.held.is_some(), "{status:?}");
    ensure!(lease.release().await? == Released::Released);
    Ok(())
}

/// The server hangs for longer than an answer is waited for, while others have all its connections. The
/// holder keeps its own connection.
async fn holder_outlives_a_pause<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let locks = server.impatient();
    let lease = locks.acquire(&name("paused"), Terms::new(ttl(6_000)).no_wait()).await?;
    let _taken = server.take_all().await;
    server.pause().await?;
    sleep(Duration::from_millis(2_500)).await;
    server.resume()?;
    sleep(Duration::from_secs(6)).await;
    lease.token().context("the lease is lost")?;
    ensure!(lease.release().await? == Released::Released);
    Ok(())
}

/// A client waits for a while. It has had locks before.
async fn waiter_has_few_connections<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let (holder, waiting) = (Locks::new(S::open(&server.url(), PATIENTLY)), server.named());
    let terms = Terms::new(ttl(1_000)).detachable();
    waiting.acquire(&name("left"), terms).await?.detach()?;
    waiting.acquire(&name("before"), lasting()).await?.release().await?;
    let lease = holder.acquire(&name("awaited"), lasting()).await?;
    let waiter =
        tokio::spawn(
            async move { waiting.acquire(&name("awaited"), lasting().wait(SOON * 2)).await },
        );
    sleep(Duration::from_secs(4)).await;
    let connections = server.count().await?;
    ensure!(connections == S::OF_A_WAITER, "{connections} connections");
    lease.release().await?;
    timeout(SOON, waiter).await???.release().await?;
    Ok(())
}

/// A connection is cut. It is made again long before the next renewal.
async fn cut_connection_is_made_again_at_once<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let lease = server.named().acquire(&name("cut"), lasting()).await?;
    ensure!(server.count().await? == 1);
    server.cut().await?;
    let is_back = async || Ok(server.count().await? == 1);
    until_async(Duration::from_secs(10), is_back).await.context("there is no connection")?;
    ensure!(lease.release().await? == Released::Released);
    Ok(())
}

/// The connection is cut, and the lock is released before that is noticed.
async fn release_over_a_cut_connection_says_what_was_true<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let locks = server.named();
    for _ in 0..3 {
        let lease = locks.acquire(&name("released"), lasting()).await?;
        server.cut().await?;
        let released = lease.release().await?;
        ensure!(released == Released::Released, "{released:?}");
    }
    Ok(())
}

/// The caller of a release gives up while the release waits for a try. The lock is not held any more, so the
/// connection is not checked any more, either.
async fn release_that_nobody_waits_for_ends_the_checks<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&server.url_over(proxy.address()), BY_DEFAULT);
    let (lock, holder) = (name("left"), Holder::random());
    granted(&client, "left", &holder, 600_000).await?;
    until_checked(&proxy).await?;
    // The same holder tries again, as after a lost reply.
    let delayed = proxy.hold("acquire(");
    let tried = client.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await;
    ensure!(tried.is_err(), "{tried:?}");
    let delayed = delayed.caught().await?;
    let released = timeout(BY_DEFAULT / 10, client.release(&lock, &holder, None)).await;
    ensure!(released.is_err(), "it waits for the try");
    delayed.deliver();
    until_unchecked(&server, &proxy).await?;
    ensure!(S::open(&server.url(), PATIENTLY).status(&lock).await?.held.is_none());
    Ok(())
}

/// The server is far away, so that the releases take several answer time-outs together.
async fn renewal_does_not_wait_behind_many_releases<S: Server>() -> anyhow::Result<()> {
    const COUNT: usize = 80;
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let answer_timeout = Duration::from_secs(1);
    let client = S::open(&server.url_over(proxy.address()), answer_timeout);
    let (token, ownership) = granted(&client, "renewed", &Holder::random(), 600_000).await?;
    let near = S::open(&server.url(), PATIENTLY);
    let mut held = Vec::new();
    for number in 0..COUNT {
        let (lock, holder) = (format!("released/{number}"), Holder::random());
        held.push((name(&lock), granted(&near, &lock, &holder, 600_000).await?));
    }
    proxy.add(Latency(Duration::from_millis(50)));
    let mut releases = JoinSet::new();
    for (lock, (token, ownership)) in held {
        let client = client.clone();
        releases.spawn(async move { client.release(&lock, &ownership.holder, Some(token)).await });
    }
    until_async(SOON, async || Ok(proxy.requests("release(") > 0)).await?;
    let renewed = client.renew(&name("renewed"), &ownership, ttl(600_000)).await?;
    ensure!(renewed == Some(token));
    let sent = proxy.requests("release(");
    ensure!(sent < COUNT / 2, "{sent} releases went before");
    while let Some(released) = releases.join_next().await {
        ensure!(released??, "a lock was not held any more");
    }
    Ok(())
}

/// A standby answers in the same way. The first answer says so, and tries continue, because a failover
/// looks the same.
async fn server_that_takes_no_writes_is_named_and_tried_again<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    server.set_read_only(true).await?;
    server_without_writes_answers_nothing(&S::open(&S::named_url(&server.url()), PATIENTLY))
        .await?;
    let locks = server.named();
    let wait = |seconds| Terms::new(ttl(60_000)).wait(Duration::from_secs(seconds));
    let error = locks.acquire(&name("r"), wait(1)).await.err().context("it takes no writes")?;
    let text = with_causes(&error);
    ensure!(text.contains("it takes no writes: it is") && text.contains("read-only"), "{text}");
    let waiting = tokio::spawn(async move { locks.acquire(&name("r"), wait(60)).await });
    server.set_read_only(false).await?;
    waiting.await??.release().await?;
    Ok(())
}

/// Another process may take the lock over, and needs a connection for it then.
async fn detached_lock_keeps_no_connection<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let locks = Locks::new(S::open(&server.url_over(proxy.address()), PATIENTLY));
    let lease = locks.acquire(&name("left"), lasting()).await?;
    until_checked(&proxy).await?;
    let detached = lease.detach()?;
    until_unchecked(&server, &proxy).await?;
    let held = locks.status(&name("left")).await?.held;
    ensure!(held.is_some_and(|held| held.ownership == detached.ownership));
    Ok(())
}

/// A renewal is under way meanwhile, as of a task that is about to end.
async fn renewal_does_not_keep_a_lock_that_is_detached<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&server.url_over(proxy.address()), PATIENTLY);
    let (token, ownership) = granted(&client, "left", &Holder::random(), 600_000).await?;
    let renewal = proxy.hold("renew(");
    let (lock, own, renewing) = (name("left"), ownership.clone(), client.clone());
    let renewed = tokio::spawn(async move { renewing.renew(&lock, &own, ttl(600_000)).await });
    let renewal = renewal.caught().await?;
    client.detach(&ownership, token);
    renewal.deliver();
    ensure!(renewed.await?? == Some(token));
    until_unchecked(&server, &proxy).await
}

/// The first renewal takes longer than a connection without locks is kept. The other connection is in use,
/// so this one can't be passed on.
async fn adopted_lock_keeps_a_connection<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let acquiring = Locks::new(S::open(&server.url(), PATIENTLY));
    let detached = acquiring.acquire(&name("adopted"), lasting()).await?.detach()?;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&S::named_url(&server.url_over(proxy.address())), PATIENTLY);
    let held_back = proxy.hold("acquire(");
    let trying = client.clone();
    let trying = tokio::spawn(async move {
        let (lock, holder) = (name("other"), Holder::random());
        trying.try_acquire(&lock, &holder, ttl(60_000), Order::Unordered).await
    });
    let held_back = held_back.caught().await?;
    proxy.add(Each("renew(", Verdict::DelayReply(Duration::from_secs(3))));
    let lease = Locks::new(client).adopt(detached, lasting()).await?;
    let connections = server.count().await?;
    ensure!(connections == 2, "{connections} connections: one for held locks, one for the try");
    held_back.deliver();
    // It may have been answered in time.
    let _ = trying.await?;
    ensure!(lease.release().await? == Released::Released);
    Ok(())
}

/// The client has held the lock before. Another one may have adopted it since.
async fn failed_adoption_keeps_no_connection<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let locks = Locks::new(S::open(&server.url_over(proxy.address()), BY_DEFAULT));
    let detached = locks.acquire(&name("left"), lasting()).await?.detach()?;
    proxy.add(Each("renew(", Verdict::Drop));
    let adopted = locks.adopt(detached, lasting()).await;
    ensure!(adopted.is_err(), "the control: {adopted:?}");
    until_unchecked(&server, &proxy).await
}

/// Waits until the connection for held locks is checked.
async fn until_checked(proxy: &Proxy) -> anyhow::Result<()> {
    let is_checked = async || Ok(proxy.requests("select 1") > 0);
    until_async(SOON, is_checked).await.context("no connection is kept")
}

/// Waits until that connection is not checked any more while another client checks its own three times.
async fn until_unchecked<S: Server>(server: &S, proxy: &Proxy) -> anyhow::Result<()> {
    let other = Proxy::start(server.socket()).await?;
    let holder = S::open(&server.url_over(other.address()), PATIENTLY);
    granted(&holder, "checked", &Holder::random(), 600_000).await?;
    let checks = |proxy: &Proxy| proxy.requests("select 1");
    let is_over = async || {
        let (before, earlier) = (checks(proxy), checks(&other));
        until_async(SOON, async || Ok(checks(&other) >= earlier + 3)).await?;
        Ok(checks(proxy) == before)
    };
    until_async(SOON, is_over).await.context("the connection is checked until the ttl ends")
}
