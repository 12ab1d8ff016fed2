//! Locks in a file of SQLite.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_client::backend::Backend;
use sqlx::{
    ConnectOptions, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::{
    super::hold::RoundTrip,
    server::{ANSWER_TIMEOUT, Server},
    upserts::two_upserts,
};

const FILE: &str = "locks.db";
const TABLE: &str = "create table least (name text primary key, value integer not null) strict";
const UPSERT: &str = "
    begin immediate;
    insert into least values ('same', 1) on conflict (name) do update set value = value + 1;
    commit";
const READ: &str = "select value from least";

/// A file of SQLite, and a connection to it.
pub(in super::super) struct Sqlite {
    connection: Mutex<SqliteConnection>,
    folder: TempDir,
}

impl Sqlite {
    pub(in super::super) async fn start() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join(FILE))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        let mut connection = options.connect().await?;
        lock_client::sqlite::install(&mut connection).await?;
        sqlx::raw_sql(TABLE).execute(&mut connection).await?;
        Ok(Self { connection: Mutex::new(connection), folder })
    }
}

#[async_trait]
impl RoundTrip for Sqlite {
    async fn round_trip(&self) -> anyhow::Result<()> {
        sqlx::raw_sql(READ).execute(&mut *self.connection.lock().await).await?;
        Ok(())
    }
}

#[async_trait]
impl Server for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn title(&self) -> &'static str {
        "a file of SQLite"
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join(FILE).display())
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(Arc::new(lock_client::sqlite::Sqlite::open(&self.url())?.answer_within(ANSWER_TIMEOUT)))
    }

    fn least_subject(&self) -> &'static str {
        "two immediate transactions with an upsert by sqlx"
    }

    async fn least(&self, count: usize) -> anyhow::Result<Vec<Duration>> {
        two_upserts::<sqlx::Sqlite>(&mut *self.connection.lock().await, UPSERT, count).await
    }

    fn goal_of_least(&self) -> f64 {
        1.3
    }

    fn round_trip_subject(&self) -> &'static str {
        "a read by sqlx"
    }
}
