//! Resources in an SQLite file.

use std::{str::FromStr, time::Duration};

use anyhow::{Context, bail};
use async_trait::async_trait;
use serde_json::json;
use sqlx::{
    SqlitePool,
    migrate::Migrator,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{
    ApplyError, Change, Listed, Page, Store, Unreachable, ValueChange, Wanted, WantedValue,
    listed_from_sql, row_from_sql,
};
use crate::row::Row;

/// How long to wait while another process writes to the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const READERS: u32 = 4;

/// Resources in an SQLite file, in WAL mode with `synchronous=FULL`: a commit is on the disk before
/// it is reported.
#[derive(Debug)]
pub struct SqliteStore {
    /// One connection: SQLite has one writer at a time, and a queue here is fairer than its locks.
    writer: SqlitePool,
    readers: SqlitePool,
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
            .busy_timeout(BUSY_TIMEOUT);
        let pool = |connections| SqlitePoolOptions::new().max_connections(connections);
        let writer = pool(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.clone())
            .await
            .with_context(|| format!("can't open {url}"))?;
        let (mode,): (String,) = sqlx::query_as("pragma journal_mode")
            .fetch_one(&writer)
            .await?;
        if mode != "wal" {
            bail!(
                "{url} can't keep a fence: an SQLite file in WAL mode is needed, this is '{mode}'"
            );
        }
        super::migrate(&migrator(), &writer).await?;
        Ok(Self {
            writer,
            readers: pool(READERS).connect_lazy_with(options),
        })
    }
}

/// The migrations, with bookkeeping of their own: a user's may live in the same database.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("../migrations/sqlite/storage");
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
        let rows = sqlx::query_as(
            r#"
            select f.token, f.holder, f.version, v.resource is not null,
                iif(w.value ->> 1, v.content_type, null), iif(w.value ->> 1, v.bytes, null),
                v.token, v.holder
            from json_each(?) w
            left join storage_fence f on f.resource = w.value ->> 0
            left join storage_value v on v.resource = f.resource
            order by w.key
            "#,
        )
        .bind(json!(wanted).to_string())
        .fetch_all(&self.readers)
        .await?;
        Ok(rows
            .into_iter()
            .map(row_from_sql)
            .collect::<Result<_, _>>()?)
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let mut transaction = self
            .writer
            .begin_with("begin immediate")
            .await
            .map_err(ApplyError::Unchanged)?;
        let moved = move_fences(&mut transaction, changes)
            .await
            .map_err(ApplyError::Unchanged)?;
        if moved < changes.len() {
            // Another process has written to the file since the rows were loaded.
            transaction
                .rollback()
                .await
                .map_err(ApplyError::Unchanged)?;
            return Ok(vec![false; changes.len()]);
        }
        put_values(&mut transaction, changes)
            .await
            .map_err(ApplyError::Unchanged)?;
        remove_values(&mut transaction, changes)
            .await
            .map_err(ApplyError::Unchanged)?;
        transaction.commit().await.map_err(ApplyError::Unknown)?;
        Ok(vec![true; changes.len()])
    }

    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable> {
        let resources = sqlx::query_as(
            r#"
            select v.resource, v.token, f.version, length(v.bytes)
            from storage_value v
            join storage_fence f on f.resource = v.resource
            where v.resource > ?1 and v.resource >= ?2 and (?3 is null or v.resource < ?3)
            order by v.resource
            limit ?4
            "#,
        )
        .bind(&page.after)
        .bind(&page.prefix)
        .bind(page.prefix_end())
        .bind(page.limit)
        .fetch_all(&self.readers)
        .await?;
        Ok(resources
            .into_iter()
            .map(listed_from_sql)
            .collect::<Result<_, _>>()?)
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        sqlx::query("select 1 from storage_fence limit 1")
            .fetch_optional(&self.readers)
            .await?;
        Ok(())
    }
}

/// Advances the fences and versions of the resources that are as expected, and returns how many
/// those were.
async fn move_fences(
    connection: &mut sqlx::SqliteConnection,
    changes: &[Change<'_>],
) -> Result<usize, sqlx::Error> {
    let fences: Vec<_> = changes
        .iter()
        .map(|change| {
            let (token, holder) = change.fence();
            let expected = (change.expected_token(), change.expected_version());
            (
                change.resource,
                token,
                holder,
                change.version(),
                expected.0,
                expected.1,
            )
        })
        .collect();
    let moved = sqlx::query(
        r#"
        insert into storage_fence (resource, token, holder, version)
        select c.value ->> 0, c.value ->> 1, c.value ->> 2, c.value ->> 3
        from json_each(?) c
        left join storage_fence f on f.resource = c.value ->> 0
        where f.token is c.value ->> 4 and coalesce(f.version, 0) = c.value ->> 5
        on conflict (resource) do update
        set token = excluded.token, holder = excluded.holder, version = excluded.version
        "#,
    )
    .bind(json!(fences).to_string())
    .execute(connection)
    .await?
    .rows_affected();
    Ok(moved.try_into().expect("a batch fits memory"))
}

/// Sets the values that the changes put. Their bytes travel as one blob, each cut out of it by its
/// offset (from 1) and length, so that they needn't be encoded.
async fn put_values(
    connection: &mut sqlx::SqliteConnection,
    changes: &[Change<'_>],
) -> Result<(), sqlx::Error> {
    let mut blob = Vec::new();
    let mut values = Vec::new();
    for change in changes {
        if let ValueChange::Put(value) = change.value() {
            let bytes = &value.content.bytes;
            let (token, holder) = super::sql_fence(value.written_with.as_ref());
            let content_type = &value.content.content_type;
            values.push((
                change.resource,
                content_type,
                blob.len() + 1,
                bytes.len(),
                token,
                holder,
            ));
            blob.extend_from_slice(bytes);
        }
    }
    if values.is_empty() {
        return Ok(());
    }
    sqlx::query(
        r#"
        insert into storage_value (resource, content_type, bytes, token, holder)
        select value ->> 0, value ->> 1, substr(?2, value ->> 2, value ->> 3), value ->> 4, value ->> 5
        from json_each(?1)
        where true
        on conflict (resource) do update set content_type = excluded.content_type,
            bytes = excluded.bytes, token = excluded.token, holder = excluded.holder
        "#,
    )
    .bind(json!(values).to_string())
    .bind(blob)
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes the values that the changes remove.
async fn remove_values(
    connection: &mut sqlx::SqliteConnection,
    changes: &[Change<'_>],
) -> Result<(), sqlx::Error> {
    let removed: Vec<_> = changes
        .iter()
        .filter(|change| matches!(change.value(), ValueChange::Remove))
        .map(|change| change.resource)
        .collect();
    if removed.is_empty() {
        return Ok(());
    }
    sqlx::query("delete from storage_value where resource in (select value from json_each(?))")
        .bind(json!(removed).to_string())
        .execute(connection)
        .await?;
    Ok(())
}
