//! A lock in a table of the database that it guards.

use anyhow::Context;
use fence::Token;
use lock_client::postgres;
use sqlx::{Connection, PgConnection};
use testbed::wait::until_async;

use super::{
    redis_lock::{EXPIRES_WITHIN, LAST_TOKEN},
    scene::Scene,
    table::Table,
};
use crate::{
    client::setup::LockSetup,
    record::{Actor, EventKind, Recorder},
};

pub(crate) struct TableLock {
    url: String,
    resource: &'static str,
    recorder: Recorder,
}

impl TableLock {
    /// Installs the lock in the database of a table. The next tokens are 33 and 34.
    pub(crate) async fn install(
        resource: &'static str,
        table: &Table,
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        let mut database = PgConnection::connect(table.url()).await?;
        postgres::install(&mut database).await?;
        sqlx::query("insert into fenced_lock.lock (name, token) values ($1, $2)")
            .bind(resource)
            .bind(i64::try_from(LAST_TOKEN)?)
            .execute(&mut database)
            .await?;
        let recorder = scene.recorder.clone();
        recorder.record(Actor::LockTable, Token::new(LAST_TOKEN).ok(), EventKind::CounterPreset);
        Ok(Self { url: table.url().to_owned(), resource, recorder })
    }

    /// What a client needs to take this lock.
    pub(crate) fn setup(&self) -> LockSetup {
        LockSetup::Postgres(self.url.clone())
    }

    /// Waits until the lease of a client has expired by the clock of the database.
    pub(crate) async fn expires(
        &self,
        whose: Actor,
        token: impl Into<Option<Token>>,
    ) -> anyhow::Result<()> {
        let is_free = async || {
            let mut database = PgConnection::connect(&self.url).await?;
            let query = "select holder is null from fenced_lock.status($1)";
            let is_free = sqlx::query_scalar(query).bind(self.resource);
            Ok(is_free.fetch_one(&mut database).await?)
        };
        until_async(EXPIRES_WITHIN, is_free).await.context("the lease did not expire")?;
        self.recorder.record(Actor::LockTable, token, EventKind::LeaseExpired { whose });
        Ok(())
    }
}
