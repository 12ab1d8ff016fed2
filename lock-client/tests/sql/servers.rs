//! The servers on which checks of connections run: PostgreSQL and MariaDB.

use std::{fmt::Display, path::PathBuf, sync::Arc, time::Duration};

use lock_client::{Locks, backend::Backend, mariadb::MariaDb, postgres::Postgres};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use testbed::{
    proxy::{Rule, Verdict},
    wait::until_async,
};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

use super::SOON;
use crate::{mariadb, postgres};

/// How long a client waits for an answer by default.
pub(super) const BY_DEFAULT: Duration = Duration::from_millis(500);
/// How long it waits if the machine is busy.
pub(super) const PATIENTLY: Duration = Duration::from_secs(5);

/// Does this to each request with a text in it.
#[derive(Debug)]
pub(super) struct Each(pub(super) &'static str, pub(super) Verdict);

impl Rule for Each {
    fn on_request(&mut self, request: &[u8]) -> Verdict {
        let Self(text, verdict) = *self;
        let has_text = String::from_utf8_lossy(request).contains(text);
        if has_text { verdict } else { Verdict::Pass }
    }
}

/// A server with locks, and with 10 connections.
pub(crate) trait Server: Sized {
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

    fn url_over(&self, proxy: impl Display) -> String;

    /// Changes one of these URLs into that of clients whose connections `count` counts.
    fn named_url(url: &str) -> String;

    fn socket(&self) -> PathBuf;

    fn open(url: &str, answer_timeout: Duration) -> Self::Client;

    /// Counts the connections of the clients with the named URL.
    async fn count(&self) -> anyhow::Result<i64>;

    /// Cuts them.
    async fn cut(&self) -> anyhow::Result<()>;

    fn named(&self) -> Locks {
        Locks::new(Self::open(&Self::named_url(&self.url()), PATIENTLY))
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

    fn url_over(&self, proxy: impl Display) -> String {
        format!("postgres://postgres@{proxy}/postgres?sslmode=disable")
    }

    fn named_url(url: &str) -> String {
        format!("{url}&application_name=named")
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

    fn url_over(&self, proxy: impl Display) -> String {
        format!("mariadb://root@{proxy}/test?ssl-mode=DISABLED")
    }

    /// That of a user without special rights.
    fn named_url(url: &str) -> String {
        url.replace("//root@", "//named@")
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
pub(super) use on_both;
