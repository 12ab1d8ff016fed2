//! A lock in a table of a database.

use anyhow::Context;
use fence::Token;
use lock_client::postgres;
use sqlx::{Connection, Executor, PgConnection};
use testbed::wait::until_async;

use super::{
    redis_lock::{EXPIRES_WITHIN, LAST_TOKEN},
    scene::Scene,
    table::Table,
};
use crate::{
    client::{
        row_lock::TABLE,
        setup::{Expiry, LockSetup},
    },
    record::{Actor, EventKind, Recorder},
};

pub(crate) struct TableLock {
    url: String,
    resource: &'static str,
    /// Whose events are the lock's.
    actor: Actor,
    setup: LockSetup,
    /// The query whether a lease has expired.
    has_expired: &'static str,
    recorder: Recorder,
}

impl TableLock {
    /// Installs the lock in the database of a table. The next tokens are 33 and 34.
    pub(crate) async fn install(
        resource: &'static str,
        table: &Table,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        Self::install_at(table.url().to_owned(), resource, Actor::LockTable, scene).await
    }

    /// Installs the lock in the database at this URL, which is this actor.
    pub(crate) async fn install_at(
        url: String,
        resource: &'static str,
        actor: Actor,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        let mut database = PgConnection::connect(&url).await?;
        postgres::install(&mut database).await?;
        sqlx::query("insert into fenced_lock.lock (name, token) values ($1, $2)")
            .bind(resource)
            .bind(i64::try_from(LAST_TOKEN)?)
            .execute(&mut database)
            .await?;
        scene.record(actor, Token::new(LAST_TOKEN).ok(), EventKind::CounterPreset);
        let recorder = scene.recorder.clone();
        let setup = LockSetup::Postgres(url.clone());
        let has_expired = "select holder is null from fenced_lock.status($1)";
        Ok(Self { url, resource, actor, setup, has_expired, recorder })
    }

    /// Makes a naive lock in the database of a table: a row that can be inserted once.
    pub(crate) async fn create_naive(
        resource: &'static str,
        table: &Table,
        expiry: Expiry,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        PgConnection::connect(table.url()).await?.execute(TABLE).await?;
        let (url, recorder) = (table.url().to_owned(), scene.recorder.clone());
        let setup = LockSetup::Row { url: url.clone(), expiry };
        let has_expired = "select expires_at < now() from row_lock where name = $1";
        Ok(Self { url, resource, actor: Actor::LockTable, setup, has_expired, recorder })
    }

    /// What a client needs to take this lock.
    pub(crate) fn setup(&self) -> LockSetup {
        self.setup.clone()
    }

    /// Waits until the lease of a client has expired by the clock of the database.
    pub(crate) async fn expires(
        &self,
        whose: Actor,
        token: impl Into<Option<Token>>,
    ) -> anyhow::Result<()> {
        let has_expired = async || {
            let mut database = PgConnection::connect(&self.url).await?;
            let has_expired = sqlx::query_scalar(self.has_expired).bind(self.resource);
            Ok(has_expired.fetch_one(&mut database).await?)
        };
        until_async(EXPIRES_WITHIN, has_expired).await.context("the lease did not expire")?;
        self.recorder.record(self.actor, token, EventKind::LeaseExpired { whose });
        Ok(())
    }
}
