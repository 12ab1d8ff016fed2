//! A lock in a PostgreSQL, behind a PgBouncer in transaction mode.

use fence::Token;
use lock_client::postgres;
use sqlx::{Connection, PgConnection};
use testbed::{PgBouncer, Postgres};

use super::{redis_lock::LAST_TOKEN, scene::Scene};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind},
};

pub(crate) struct PooledLock {
    setup: LockSetup,
    _bouncer: PgBouncer,
    server: Postgres,
}

impl PooledLock {
    /// Starts one with PostgreSQL's advisory lock.
    pub(crate) async fn start_advisory() -> anyhow::Result<Self> {
        Self::start(LockSetup::Advisory).await
    }

    /// Starts one with a lock of the lock client. The next tokens are 33 and 34.
    pub(crate) async fn start_in_a_table(resource: &str, scene: &Scene) -> anyhow::Result<Self> {
        let lock = Self::start(LockSetup::Postgres).await?;
        let mut database = PgConnection::connect(&lock.server.url()).await?;
        postgres::install(&mut database).await?;
        sqlx::query("insert into fenced_lock.lock (name, token) values ($1, $2)")
            .bind(resource)
            .bind(i64::try_from(LAST_TOKEN)?)
            .execute(&mut database)
            .await?;
        scene.record(Actor::LockTable, Token::new(LAST_TOKEN).ok(), EventKind::CounterPreset);
        Ok(lock)
    }

    async fn start(setup: fn(String) -> LockSetup) -> anyhow::Result<Self> {
        let server = Postgres::start().await?;
        let bouncer = PgBouncer::start(&server).await?;
        Ok(Self { setup: setup(bouncer.url()), _bouncer: bouncer, server })
    }

    /// What a client needs to take this lock.
    pub(crate) fn setup(&self) -> LockSetup {
        self.setup.clone()
    }
}
