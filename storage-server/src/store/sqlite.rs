//! Resources in an SQLite file.

use std::{collections::HashSet, str::FromStr, time::Duration};

use anyhow::{Context, bail};
use async_trait::async_trait;
use fence::ResourceName;
use serde::Serialize;
use sqlx::{
    ConnectOptions, Sqlite, SqliteConnection,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::sync::Mutex;

use super::{
    ApplyError, Change, Decide, Listed, Page, SqlChange, Store, Unreachable, Wanted, WantedValue,
    kept::KeptPool, listed_from_sql, row_from_sql,
};
use crate::row::Row;

/// How long to wait while another process writes to the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const READERS: u32 = 4;

/// Resources in an SQLite file, in WAL mode with `synchronous=FULL`: a commit is on the disk before
/// it is reported.
#[derive(Debug)]
pub struct SqliteStore {
    /// SQLite has one writer at a time, and waiting here is fairer than its locks.
    writer: Mutex<SqliteConnection>,
    readers: KeptPool<Sqlite>,
}

impl SqliteStore {
    /// Opens the file, which is made if it doesn't exist, and applies the migrations.
    ///
    /// # Errors
    /// If the URL or the file can't be used, or its schema is newer than this server knows.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let options = SqliteConnectOptions::from_str(url)
            .with_context(|| format!("{url} is no SQLite URL"))?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            // On macOS, a plain sync leaves what was written in the disk's own cache.
            .pragma("fullfsync", "on")
            .pragma("checkpoint_fullfsync", "on")
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        let mut writer = options.connect().await.with_context(|| format!("can't open {url}"))?;
        let (mode,): (String,) =
            sqlx::query_as("pragma journal_mode").fetch_one(&mut writer).await?;
        if mode != "wal" {
            bail!(
                "{url} can't keep a fence: an SQLite file in WAL mode is needed, this is '{mode}'"
            );
        }
        super::migrate(&migrator(), &mut writer).await?;
        let readers = SqlitePoolOptions::new().max_connections(READERS).connect_lazy_with(options);
        Ok(Self { writer: Mutex::new(writer), readers: KeptPool::new(readers) })
    }
}

/// The migrations, with bookkeeping of their own: a user's may live in the same database.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("migrations/sqlite");
    migrator.dangerous_set_table_name("storage_migrations");
    migrator
}

#[async_trait]
impl Store for SqliteStore {
    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable> {
        let wanted: Vec<_> = wanted
            .iter()
            .map(|wanted| (wanted.resource, wanted.value == WantedValue::Whole))
            .collect();
        let mut reader = self.readers.take().await?;
        let rows = sqlx::query_as(
            r#"
            select r.token, r.holder, r.version, r.bytes is not null,
                iif(w.value ->> 1, r.content_type, null), iif(w.value ->> 1, r.bytes, null),
                r.value_token, r.value_holder
            from json_each(?) w
            left join storage_resource r on r.resource = w.value ->> 0
            order by w.key
            "#,
        )
        .bind(to_json(&wanted))
        .fetch_all(&mut *reader)
        .await?;
        self.readers.give_back(reader);
        Ok(rows.into_iter().map(row_from_sql).collect::<Result<_, _>>()?)
    }

    /// One statement, which compares each row with what was loaded: another process may have written
    /// to the file meanwhile. The values travel as one blob, each cut out of it by its offset (from 1) and length, so that
    /// they needn't be encoded; an empty one is not cut, as `substr` of an empty blob is null.
    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let mut blob = Vec::new();
        let rows: Vec<_> = changes
            .iter()
            .map(|change| {
                let c = SqlChange::from(change);
                let (offset, length) = (blob.len() + 1, c.bytes.map(<[u8]>::len));
                blob.extend_from_slice(c.bytes.unwrap_or_default());
                (
                    c.resource,
                    c.expected_token,
                    c.expected_version,
                    c.token,
                    c.holder,
                    c.version,
                    c.keeps_value,
                    c.content_type,
                    offset,
                    length,
                    c.value_token,
                    c.value_holder,
                )
            })
            .collect();
        let mut writer = self.writer.lock().await;
        // All rows are awaited, not the first: the statement is committed only after its last row.
        let applied: Result<Vec<(String,)>, _> = sqlx::query_as(
            r#"
            insert into storage_resource (
                resource, token, holder, version, content_type, bytes, value_token, value_holder
            )
            select c.value ->> 0, c.value ->> 3, c.value ->> 4, c.value ->> 5,
                iif(c.value ->> 6, r.content_type, c.value ->> 7),
                iif(c.value ->> 6, r.bytes, iif(c.value ->> 9 = 0, x'',
                    substr(?2, c.value ->> 8, c.value ->> 9))),
                iif(c.value ->> 6, r.value_token, c.value ->> 10),
                iif(c.value ->> 6, r.value_holder, c.value ->> 11)
            from json_each(?1) c
            left join storage_resource r on r.resource = c.value ->> 0
            where r.token is c.value ->> 1 and coalesce(r.version, 0) = c.value ->> 2
            on conflict (resource) do update set token = excluded.token, holder = excluded.holder,
                version = excluded.version, content_type = excluded.content_type,
                bytes = excluded.bytes, value_token = excluded.value_token,
                value_holder = excluded.value_holder
            returning resource
            "#,
        )
        .bind(to_json(&rows))
        .bind(blob)
        .fetch_all(&mut *writer)
        .await;
        let applied: HashSet<String> =
            applied.map_err(failed)?.into_iter().map(|(resource,)| resource).collect();
        Ok(changes.iter().map(|change| applied.contains(change.resource.as_str())).collect())
    }

    /// SQLite's writers come one after the other, so none of them is always late.
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
        let resources = sqlx::query_as(
            r#"
            select resource, value_token, version, length(bytes)
            from storage_resource
            where bytes is not null
                and resource > ?1 and resource >= ?2 and (?3 is null or resource < ?3)
            order by resource
            limit ?4
            "#,
        )
        .bind(&page.after)
        .bind(&page.prefix)
        .bind(page.prefix_end())
        .bind(page.limit)
        .fetch_all(self.readers.pool())
        .await?;
        Ok(resources.into_iter().map(listed_from_sql).collect::<Result<_, _>>()?)
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        sqlx::query("select 1 from storage_resource limit 1")
            .fetch_optional(self.readers.pool())
            .await?;
        Ok(())
    }

    /// Brings everything from the write-ahead log into the database file.
    async fn close(&self) {
        let mut writer = self.writer.lock().await;
        let copied = sqlx::query("pragma wal_checkpoint(truncate)").execute(&mut *writer).await;
        if let Err(error) = copied {
            tracing::warn!("the write-ahead log was not emptied, and is still needed: {error}");
        }
    }
}

/// Tells what a failed statement has left behind, by SQLite's primary result code.
fn failed(error: sqlx::Error) -> ApplyError {
    let code = error.as_database_error().and_then(|error| error.code());
    let code: Option<u32> = code.and_then(|code| code.parse().ok());
    match code.map(|extended| extended & 0xff) {
        // BUSY, LOCKED, READONLY, FULL, CONSTRAINT: the statement was rolled back.
        Some(5 | 6 | 8 | 13 | 19) => ApplyError::Unchanged(error),
        _ => ApplyError::Unknown(error),
    }
}

fn to_json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).expect("names, numbers and text are JSON")
}
