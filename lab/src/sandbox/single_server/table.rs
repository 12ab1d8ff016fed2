//! A table of PostgreSQL.

use async_trait::async_trait;
use lock_client::{Locks, postgres};
use sqlx::{Connection, Executor, PgConnection};
use testbed::{Clock, Postgres, Proxy, proxy::Upstream};

use super::{super::lock_service::ANSWER_WITHIN, Server};
use crate::{client::setup::LockSetup, record::Actor};

/// A PostgreSQL that keeps the lock, and has no other data.
pub(in super::super) struct LockTable(Postgres);

impl LockTable {
    async fn install(&self) -> anyhow::Result<()> {
        Ok(postgres::install(&mut PgConnection::connect(&self.0.url()).await?).await?)
    }
}

#[async_trait(?Send)]
impl Server for LockTable {
    const ACTOR: Actor = Actor::LockTable;
    const NAME: &str = "PostgreSQL";

    async fn start() -> anyhow::Result<Self> {
        // Only on Linux can a process have a clock of its own.
        let postgres = if cfg!(target_os = "linux") {
            Postgres::start_with_own_clock().await?
        } else {
            Postgres::start().await?
        };
        let table = Self(postgres);
        table.install().await?;
        Ok(table)
    }

    fn upstream(&self) -> Upstream {
        self.0.socket_folder().join(".s.PGSQL.5432").into()
    }

    fn setup(&self, way: &Proxy) -> LockSetup {
        LockSetup::Postgres(format!(
            "{}/postgres",
            way.url("postgres").replace("://", "://postgres@")
        ))
    }

    fn locks(&self) -> anyhow::Result<Locks> {
        let table = postgres::Postgres::open(&self.0.url())?.answer_within(ANSWER_WITHIN);
        Ok(Locks::new(table))
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.0.crash().await
    }

    async fn start_again(&mut self) -> anyhow::Result<u64> {
        self.0.start_again().await?;
        let mut database = PgConnection::connect(&self.0.url()).await?;
        let rows = sqlx::query_scalar::<_, i64>("select count(*) from fenced_lock.lock");
        Ok(rows.fetch_one(&mut database).await?.try_into()?)
    }

    async fn start_empty(&mut self) -> anyhow::Result<()> {
        self.0.start_again().await?;
        let mut database = PgConnection::connect(&self.0.url()).await?;
        database.execute("drop schema fenced_lock cascade").await?;
        self.install().await
    }

    fn clock(&self) -> Option<Clock> {
        self.0.clock().ok()
    }
}
