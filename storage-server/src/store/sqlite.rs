//! Resources in an SQLite file.

mod statements;

use std::{str::FromStr, time::Duration};

use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{
    ConnectOptions, Sqlite, SqliteConnection,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::Mutex;

use self::statements::{apply_changes, list_rows, load_rows};
use super::{
    Change, Decide, Store, Wanted,
    error::{ApplyError, OpenError, Unreachable},
    kept_pool::KeptPool,
    list::{Listed, Page},
    schema::migrate,
};
use crate::row::Row;

/// How long to wait while another process writes to the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const READERS: u32 = 4;

/// Resources in an SQLite file, in WAL mode with `synchronous=FULL`: a commit is on the disk before
/// it is reported.
#[derive(Debug)]
pub(super) struct SqliteStore {
    url: String,
    /// SQLite has one writer at a time, and this mutex is fairer than its locks.
    writer: Mutex<SqliteConnection>,
    readers: KeptPool<Sqlite>,
}

impl SqliteStore {
    /// Opens the file, creates it if it doesn't exist, and applies the migrations.
    pub(super) async fn open(url: &str) -> Result<Self, OpenError> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(OpenError::InvalidUrl)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            // On macOS, a plain sync leaves the data in the disk's own cache.
            .pragma("fullfsync", "on")
            .pragma("checkpoint_fullfsync", "on")
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        let connect_error = |source| OpenError::Connect { database: url.to_owned(), source };
        let mut writer = options.connect().await.map_err(connect_error)?;
        let mode: String = sqlx::query_scalar("pragma journal_mode")
            .fetch_one(&mut writer)
            .await
            .map_err(connect_error)?;
        if mode != "wal" {
            let reason = format!("it must be a file in WAL mode, and its mode is '{mode}'");
            return Err(OpenError::Unsafe { database: url.to_owned(), reason });
        }
        migrate(&migrator(), &mut writer, url).await?;
        let readers = SqlitePoolOptions::new().max_connections(READERS).connect_lazy_with(options);
        Ok(Self {
            url: url.to_owned(),
            writer: Mutex::new(writer),
            readers: KeptPool::new(readers),
        })
    }
}

/// The migrations. They have a bookkeeping table of their own, because the database may also have a
/// user's migrations.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("migrations/sqlite");
    migrator.dangerous_set_table_name("storage_migrations");
    migrator
}

#[async_trait]
impl Store for SqliteStore {
    fn database(&self) -> &str {
        &self.url
    }

    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable> {
        let mut reader = self.readers.take().await?;
        let rows = load_rows(&mut reader, wanted).await?;
        self.readers.keep(reader);
        Ok(rows)
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let mut writer = self.writer.lock().await;
        apply_changes(&mut writer, changes).await.map_err(apply_error)
    }

    /// SQLite's writers wait for each other, so no writer is always too late.
    async fn apply_under_lock(
        &self,
        wanted: Wanted<'_>,
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        let mut rows = self
            .load(&[wanted])
            .await
            .map_err(|Unreachable(error)| ApplyError::Unchanged(error))?;
        let before = rows.pop().expect("one row is wanted");
        let after = decide(&before);
        let change = Change { resource: wanted.resource, before: &before, after: &after };
        Ok(before == after || self.apply(&[change]).await? == [true])
    }

    /// SQLite has no locks on rows.
    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        Ok(vec![false; resources.len()])
    }

    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable> {
        Ok(list_rows(self.readers.pool(), page).await?)
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        sqlx::query("select 1 from storage_resource limit 1")
            .fetch_optional(self.readers.pool())
            .await?;
        Ok(())
    }

    /// Moves everything from the write-ahead log into the database file.
    async fn close(&self) {
        let mut writer = self.writer.lock().await;
        let copied = sqlx::query("pragma wal_checkpoint(truncate)").execute(&mut *writer).await;
        if let Err(error) = copied {
            let database = &self.url;
            tracing::warn!(database, "the write-ahead log is not empty, keep its file: {error}");
        }
    }
}

/// What a failed statement left behind, by SQLite's primary result code.
fn apply_error(error: sqlx::Error) -> ApplyError {
    let code = error.as_database_error().and_then(|error| error.code());
    let code: Option<u32> = code.and_then(|code| code.parse().ok());
    match code.map(|extended| extended & 0xff) {
        // BUSY, LOCKED, READONLY, FULL, CONSTRAINT: the statement was rolled back.
        Some(5 | 6 | 8 | 13 | 19) => ApplyError::Unchanged(error),
        _ => ApplyError::Unknown(error),
    }
}
