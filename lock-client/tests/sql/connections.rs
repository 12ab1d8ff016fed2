//! The connections of a client, and which one is kept for held locks: in PostgreSQL and in MariaDB.

use std::{fmt::Display, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use fence::Holder;
use lock_client::{
    Locks, Order, Released, Terms,
    backend::{Attempt, Backend},
    mariadb::MariaDb,
    postgres::Postgres,
};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use testbed::{Proxy, proxy::Latency, wait::until_async};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{SOON, granted, server_without_writes_answers_nothing};
use crate::{
    lock_service::{lasting, tried, ttl, unrenewed, with_causes},
    mariadb,
    names::name,
    postgres,
};

/// How long a client waits for an answer by default.
const BY_DEFAULT: Duration = Duration::from_millis(500);
/// How long it waits if the machine is busy.
const PATIENTLY: Duration = Duration::from_secs(5);

/// A server with locks, and with 10 connections.
trait Server: Sized {
    type Connection: Connection + Send;
    type Client: Backend + Clone;
    /// How many connections a client has that waits.
    const OF_A_WAITER: i64;

    async fn start() -> Self;

    async fn pause(&self) -> anyhow::Result<()>;

    fn resume(&self) -> anyhow::Result<()>;

    /// Lets it take no writes, or lets it take them again.
    async fn set_read_only(&self, is_on: bool) -> anyhow::Result<()>;

    /// The URL of its administrator.
    fn url(&self) -> String;

    /// The URL of clients whose connections `count` counts.
    fn named_url(&self) -> String;

    fn url_over(&self, proxy: impl Display) -> String;

    fn socket(&self) -> PathBuf;

    fn open(url: &str, answer_timeout: Duration) -> Self::Client;

    /// Counts the connections of the clients with the named URL.
    async fn count(&self) -> anyhow::Result<i64>;

    /// Cuts them.
    async fn cut(&self) -> anyhow::Result<()>;

    fn named(&self) -> Locks {
        Locks::new(Self::open(&self.named_url(), PATIENTLY))
    }

    /// A client that waits for answers as long as by default.
    fn impatient(&self) -> Locks {
        Locks::new(Self::open(&self.url(), BY_DEFAULT))
    }

    /// Takes all connections that the server has left, and each that it gets back.
    async fn take_all(&self) -> JoinSet<()> {
        let full = Arc::new(Notify::new());
        let mut taking = JoinSet::new();
        for _ in 0..3 {
            let (url, full) = (self.url(), full.clone());
            taking.spawn(async move {
                let mut taken = Vec::new();
                loop {
                    match Self::Connection::connect(&url).await {
                        Ok(connection) => taken.push(connection),
                        Err(_) => full.notify_one(),
                    }
                    sleep(Duration::from_millis(5)).await;
                }
            });
        }
        full.notified().await;
        taking
    }
}

impl Server for testbed::Postgres {
    type Connection = PgConnection;
    type Client = Postgres;
    /// One for tries, and one that listens.
    const OF_A_WAITER: i64 = 2;

    async fn start() -> Self {
        postgres::locked_with(&["max_connections=10"], str::to_owned).await.0
    }

    async fn pause(&self) -> anyhow::Result<()> {
        self.pause().await
    }

    fn resume(&self) -> anyhow::Result<()> {
        self.resume()
    }

    async fn set_read_only(&self, is_on: bool) -> anyhow::Result<()> {
        let value = if is_on { "on" } else { "off" };
        self.reload_with(&format!("default_transaction_read_only = {value}"))?;
        let is_set = async || {
            let mut connection = PgConnection::connect(&self.url()).await?;
            let setting = "show default_transaction_read_only";
            let setting: String = sqlx::query_scalar(setting).fetch_one(&mut connection).await?;
            Ok(setting == value)
        };
        until_async(SOON, is_set).await
    }

    fn url(&self) -> String {
        self.url()
    }

    fn named_url(&self) -> String {
        format!("{}&application_name=named", self.url())
    }

    fn url_over(&self, proxy: impl Display) -> String {
        format!("postgres://postgres@{proxy}/postgres?sslmode=disable")
    }

    fn socket(&self) -> PathBuf {
        self.socket_folder().join(".s.PGSQL.5432")
    }

    fn open(url: &str, answer_timeout: Duration) -> Postgres {
        Postgres::open(url).unwrap().answer_within(answer_timeout)
    }

    async fn count(&self) -> anyhow::Result<i64> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        let count = "select count(*) from pg_stat_activity where application_name = 'named'";
        Ok(sqlx::query_scalar(count).fetch_one(&mut connection).await?)
    }

    async fn cut(&self) -> anyhow::Result<()> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        let cut = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
            where application_name = 'named'";
        sqlx::query(cut).fetch_all(&mut connection).await?;
        Ok(())
    }
}

impl Server for testbed::MariaDb {
    type Connection = MySqlConnection;
    type Client = MariaDb;
    const OF_A_WAITER: i64 = 1;

    async fn start() -> Self {
        mariadb::locked_with(&["--max-connections=10"]).await
    }

    async fn pause(&self) -> anyhow::Result<()> {
        self.pause().await
    }

    fn resume(&self) -> anyhow::Result<()> {
        self.resume()
    }

    async fn set_read_only(&self, is_on: bool) -> anyhow::Result<()> {
        let mut connection = MySqlConnection::connect(&self.url()).await?;
        let set = format!("set global read_only = {is_on}");
        connection.execute(AssertSqlSafe(set)).await?;
        Ok(())
    }

    fn url(&self) -> String {
        self.url()
    }

    /// The URL of a user without special rights.
    fn named_url(&self) -> String {
        self.url().replace("//root@", "//named@")
    }

    fn url_over(&self, proxy: impl Display) -> String {
        format!("mariadb://root@{proxy}/test?ssl-mode=DISABLED")
    }

    fn socket(&self) -> PathBuf {
        self.socket()
    }

    fn open(url: &str, answer_timeout: Duration) -> MariaDb {
        MariaDb::open(url).unwrap().answer_within(answer_timeout)
    }

    async fn count(&self) -> anyhow::Result<i64> {
        let mut connection = MySqlConnection::connect(&self.url()).await?;
        let count = "select count(*) from information_schema.processlist where user = 'named'";
        Ok(sqlx::query_scalar(count).fetch_one(&mut connection).await?)
    }

    async fn cut(&self) -> anyhow::Result<()> {
        let mut connection = MySqlConnection::connect(&self.url()).await?;
        connection.execute("kill user named").await?;
        Ok(())
    }
}

/// Makes each check a test on both servers.
macro_rules! on_both {
    ($($check:ident)*) => {
        mod on_postgres {
            $(#[tokio::test]
            async fn $check() {
                super::$check::<testbed::Postgres>().await.unwrap();
            })*
        }

        mod on_mariadb {
            $(#[tokio::test]
            async fn $check() {
                super::$check::<testbed::MariaDb>().await.unwrap();
            })*
        }
    };
}

on_both! {
    holder_needs_no_free_connection
    holder_outlives_a_pause
    waiter_has_few_connections
    cut_connection_is_made_again_at_once
    release_over_a_cut_connection_says_what_was_true
    connection_that_is_silent_is_replaced_each_time
    waiter_whose_connections_fall_silent_tries_again
    try_that_arrives_late_is_released
    idle_connection_replaces_the_one_for_held_locks
    release_that_nobody_waits_for_ends_the_checks
    renewal_does_not_wait_behind_many_releases
    background_includes_a_try_that_the_server_carries_out_late
    server_that_takes_no_writes_is_named_and_tried_again
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

/// The caller of a release gives up while the release waits for a try. The lock is not held any more, so the
/// connection is not checked any more, either.
async fn release_that_nobody_waits_for_ends_the_checks<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    let proxy = Proxy::start(server.socket()).await?;
    let client = S::open(&server.url_over(proxy.address()), BY_DEFAULT);
    let (lock, holder) = (name("left"), Holder::random());
    granted(&client, "left", &holder, 600_000).await?;
    until_async(SOON, async || Ok(proxy.requests("select 1") > 0)).await.context("no checks")?;
    // The same holder tries again, as after a lost reply.
    let delayed = proxy.hold("acquire(");
    let tried = client.try_acquire(&lock, &holder, ttl(600_000), Order::Unordered).await;
    ensure!(tried.is_err(), "{tried:?}");
    let delayed = delayed.caught().await?;
    let released = timeout(BY_DEFAULT / 10, client.release(&lock, &holder, None)).await;
    ensure!(released.is_err(), "it waits for the try");
    delayed.deliver();
    let is_over = async || {
        let before = proxy.requests("select 1");
        sleep(Duration::from_secs(3)).await;
        Ok(proxy.requests("select 1") == before)
    };
    until_async(SOON, is_over).await.context("the connection is checked until the ttl ends")?;
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

/// A standby answers in the same way. The first answer says so, and tries continue, because a failover
/// looks the same.
async fn server_that_takes_no_writes_is_named_and_tried_again<S: Server>() -> anyhow::Result<()> {
    let server = S::start().await;
    server.set_read_only(true).await?;
    server_without_writes_answers_nothing(&S::open(&server.named_url(), PATIENTLY)).await?;
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
