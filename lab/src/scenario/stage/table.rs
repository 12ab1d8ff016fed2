//! A private PostgreSQL with a table, which is protected or not.

use fence::{Token, postgres};
use sqlx::{Connection, Executor, PgConnection};

use super::scene::Scene;
use crate::{
    client::{
        setup::{Guard, StoreSetup},
        table::TABLE,
    },
    record::{Checks, Event, EventKind},
};

pub(crate) struct Table {
    url: String,
    database: PgConnection,
    resource: &'static str,
}

impl Table {
    /// Makes the table, with one row, and protects it if this world's storage checks tokens.
    pub(crate) async fn create(
        resource: &'static str,
        value: &str,
        scene: &mut Scene,
    ) -> anyhow::Result<Self> {
        let url = scene.database().await?;
        let mut database = PgConnection::connect(&url).await?;
        database.execute(TABLE).await?;
        let row = sqlx::query("insert into shelf values ($1, $2)").bind(resource).bind(value);
        row.execute(&mut database).await?;
        if scene.world.checks == Checks::Tokens {
            postgres::install(&mut database).await?;
            database.execute("select fence.protect('shelf', 'resource')").await?;
        }
        Ok(Self { url, database, resource })
    }

    /// The URL of its database.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What a client needs that works on the table.
    pub(crate) fn setup(&self, guard: Guard) -> StoreSetup {
        StoreSetup::Table { url: self.url.clone(), guard }
    }

    /// The row's value.
    pub(crate) async fn value(&mut self) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar("select value from shelf where resource = $1")
            .bind(self.resource)
            .fetch_one(&mut self.database)
            .await?)
    }
}

/// The token of the last write. The table itself stores no tokens beside its values.
pub(crate) fn last_token(events: &[Event]) -> Option<Token> {
    let written = |event: &&Event| matches!(event.kind, EventKind::Written { .. });
    events.iter().rfind(written).and_then(|event| event.token)
}
