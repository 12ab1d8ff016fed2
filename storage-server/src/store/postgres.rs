//! Resources in a PostgreSQL database.

use std::{str::FromStr, sync::Mutex, time::Duration};

use anyhow::Context;
use async_trait::async_trait;
use sqlx::{
    Executor, PgConnection, PgPool, Postgres,
    migrate::Migrator,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{
    ApplyError, Change, Listed, Page, Store, Unreachable, ValueChange, Wanted, WantedValue,
    listed_from_sql, row_from_sql,
};
use crate::row::Row;

const CONNECTIONS: u32 = 8;
/// How long to try to connect, or to wait for a free connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the answer to a statement before the connection is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What every session sets, whatever the database's own defaults are. `lock_timeout` bounds how long
/// somebody else's lock holds up a batch; the planner is kept to the index, as it doesn't know how
/// few rows a batch has.
const SESSION: [(&str, &str); 7] = [
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("lock_timeout", "50ms"),
    ("statement_timeout", "8s"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
];

/// Resources in a PostgreSQL database that any number of servers may share.
///
/// Every statement is a transaction of its own: a server that is paused between two of them holds
/// no lock.
#[derive(Debug)]
pub struct PostgresStore {
    pool: PgPool,
    /// A connection that the committer used last and will use next. Through the pool, each batch
    /// would cost a round trip more to see whether the connection still lives.
    kept: Mutex<Option<PoolConnection<Postgres>>>,
}

impl PostgresStore {
    /// Connects and applies the migrations.
    ///
    /// # Errors
    /// If the URL or the database can't be used, the database runs with `fsync=off`, or its schema
    /// is newer than this server knows.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(url)
            .context("the database URL is no PostgreSQL URL")?
            .application_name("storage-server")
            .options(SESSION);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(|connection, _| Box::pin(refuse_without_fsync(connection)))
            .connect_with(options)
            .await
            .context("can't use the PostgreSQL database")?;
        let mut connection = pool.acquire().await?;
        // Another server may be migrating at this moment; its lock is waited for.
        connection
            .execute("set lock_timeout = 0; set statement_timeout = 0")
            .await?;
        super::migrate(&migrator(), &mut *connection).await?;
        connection.close().await?;
        Ok(Self {
            pool,
            kept: Mutex::new(None),
        })
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let kept = self.kept.lock().expect("no panic while it is held").take();
        match kept {
            Some(connection) => Ok(connection),
            None => self.pool.acquire().await,
        }
    }

    /// Keeps a connection whose statement was answered; closes one that may still be busy with it.
    fn settle<T>(
        &self,
        mut connection: PoolConnection<Postgres>,
        answered: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, sqlx::Error> {
        let answer = answered.unwrap_or_else(|_| {
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
            Err(sqlx::Error::Io(error))
        });
        match answer {
            Ok(_) | Err(sqlx::Error::Database(_)) => {
                self.kept
                    .lock()
                    .expect("no panic while it is held")
                    .replace(connection);
            }
            Err(_) => connection.close_on_drop(),
        }
        answer
    }

    async fn load_once(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, sqlx::Error> {
        let resources: Vec<_> = wanted
            .iter()
            .map(|wanted| wanted.resource.as_str())
            .collect();
        let whole: Vec<_> = wanted
            .iter()
            .map(|wanted| wanted.value == WantedValue::Whole)
            .collect();
        let mut connection = self.connection().await?;
        let query = sqlx::query_as(
            r#"
            select f.token, f.holder, f.version, v.resource is not null,
                case when w.whole then v.content_type end, case when w.whole then v.bytes end,
                v.token, v.holder
            from unnest($1::text[], $2::bool[]) with ordinality as w (resource, whole, ordinal)
            left join storage.fence f on f.resource = w.resource
            left join storage.value v on v.resource = f.resource
            order by w.ordinal
            "#,
        )
        .bind(resources)
        .bind(whole)
        .fetch_all(&mut *connection);
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, query).await;
        self.settle(connection, answered)?
            .into_iter()
            .map(row_from_sql)
            .collect()
    }
}

async fn refuse_without_fsync(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (fsync,): (String,) = sqlx::query_as("select current_setting('fsync')")
        .fetch_one(connection)
        .await?;
    if fsync != "on" {
        return Err(sqlx::Error::Configuration(
            "it runs with fsync=off, and would forget fences in a crash".into(),
        ));
    }
    Ok(())
}

/// The migrations, with bookkeeping of their own: a user's may live in the same database.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("../migrations/postgres/storage");
    migrator.dangerous_set_table_name("storage.migrations");
    migrator.create_schema("storage");
    migrator
}

#[async_trait]
impl Store for PostgresStore {
    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable> {
        match self.load_once(wanted).await {
            // The kept connection may have died while nobody used it. A new one tells.
            Err(sqlx::Error::Io(_)) => Ok(self.load_once(wanted).await?),
            loaded => Ok(loaded?),
        }
    }

    /// One statement. The fences come first and are compared, under their locks, with what was
    /// loaded; values follow only where the fence did, so the fence's lock guards them too. A fence
    /// that somebody else has locked is passed over. Nothing waits, but for rivals that insert the
    /// same new fence: they come in byte order, and so don't deadlock.
    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let columns = Columns::of(changes);
        let mut connection = self.connection().await.map_err(ApplyError::Unchanged)?;
        // All rows are awaited, not the first: the statement is committed only after its last row.
        let query = sqlx::query_as(
            r#"
            with change as (
                select * from unnest(
                    $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[],
                    $7::bool[], $8::text[], $9::bytea[], $10::bigint[], $11::text[]
                ) with ordinality as change (
                    resource, expected_token, expected_version, token, holder, version,
                    removes, content_type, bytes, value_token, value_holder, ordinal
                )
            ), as_expected as materialized (
                select c.ordinal
                from change c
                join storage.fence f on f.resource = c.resource
                where f.version = c.expected_version
                    and f.token is not distinct from c.expected_token
                order by f.resource
                for no key update of f skip locked
            ), updated as (
                update storage.fence f
                set token = c.token, holder = c.holder, version = c.version
                from change c
                join as_expected using (ordinal)
                where f.resource = c.resource
                returning c.ordinal
            ), inserted as (
                insert into storage.fence (resource, token, holder, version)
                select resource, token, holder, version
                from change
                where expected_version = 0 and expected_token is null
                order by ordinal
                on conflict (resource) do nothing
                returning resource
            ), moved as (
                select ordinal from updated
                union all
                select c.ordinal from inserted i join change c on c.resource = i.resource
            ), put as (
                insert into storage.value (resource, content_type, bytes, token, holder)
                select resource, content_type, bytes, value_token, value_holder
                from change
                join moved using (ordinal)
                where bytes is not null
                order by ordinal
                on conflict (resource) do update set content_type = excluded.content_type,
                    bytes = excluded.bytes, token = excluded.token, holder = excluded.holder
            ), removed as (
                delete from storage.value v
                using change c
                join moved using (ordinal)
                where v.resource = c.resource and c.removes
            )
            select ordinal from moved
            "#,
        )
        .bind(columns.resource)
        .bind(columns.expected_token)
        .bind(columns.expected_version)
        .bind(columns.token)
        .bind(columns.holder)
        .bind(columns.version)
        .bind(columns.removes)
        .bind(columns.content_type)
        .bind(columns.bytes)
        .bind(columns.value_token)
        .bind(columns.value_holder)
        .fetch_all(&mut *connection);
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, query).await;
        let moved: Vec<(i64,)> = match self.settle(connection, answered) {
            Ok(moved) => moved,
            Err(error) => return failed(error, changes.len()),
        };
        let mut applied = vec![false; changes.len()];
        for (ordinal,) in moved {
            applied[usize::try_from(ordinal - 1).expect("ordinals count from 1")] = true;
        }
        Ok(applied)
    }

    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable> {
        let resources = sqlx::query_as(
            r#"
            select v.resource, v.token, f.version, length(v.bytes)::bigint
            from storage.value v
            join storage.fence f on f.resource = v.resource
            where v.resource > $1 and v.resource >= $2 and ($3 is null or v.resource < $3)
            order by v.resource
            limit $4
            "#,
        )
        .bind(&page.after)
        .bind(&page.prefix)
        .bind(page.prefix_end())
        .bind(i64::from(page.limit))
        .fetch_all(&self.pool)
        .await?;
        Ok(resources
            .into_iter()
            .map(listed_from_sql)
            .collect::<Result<_, _>>()?)
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        sqlx::query("select from storage.fence limit 1")
            .fetch_optional(&self.pool)
            .await?;
        Ok(())
    }
}

/// Tells what a failed statement has left behind, by its SQLSTATE.
fn failed(error: sqlx::Error, changes: usize) -> Result<Vec<bool>, ApplyError> {
    let sqlstate = error
        .as_database_error()
        .and_then(|error| error.code())
        .unwrap_or_default();
    match &*sqlstate {
        // lock_not_available
        "55P03" => Err(ApplyError::Blocked),
        // serialization_failure, deadlock_detected: a rival went first
        "40001" | "40P01" => Ok(vec![false; changes]),
        // No SQLSTATE, or one of a server that crashed or was shut down, perhaps after its commit.
        "" => Err(ApplyError::Unknown(error)),
        state
            if ["08", "57P", "58", "XX"]
                .iter()
                .any(|class| state.starts_with(class)) =>
        {
            Err(ApplyError::Unknown(error))
        }
        // Any other error has rolled the statement back.
        _ => Err(ApplyError::Unchanged(error)),
    }
}

/// The changes as PostgreSQL takes them: an array for each column.
#[derive(Default)]
struct Columns<'a> {
    resource: Vec<&'a str>,
    expected_token: Vec<Option<i64>>,
    expected_version: Vec<i64>,
    token: Vec<Option<i64>>,
    holder: Vec<&'a str>,
    version: Vec<i64>,
    removes: Vec<bool>,
    content_type: Vec<Option<&'a str>>,
    bytes: Vec<Option<&'a [u8]>>,
    value_token: Vec<Option<i64>>,
    value_holder: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(changes: &'a [Change<'a>]) -> Self {
        let mut columns = Self::default();
        for change in changes {
            let (token, holder) = change.fence();
            columns.resource.push(change.resource.as_str());
            columns.expected_token.push(change.expected_token());
            columns.expected_version.push(change.expected_version());
            columns.token.push(token);
            columns.holder.push(holder);
            columns.version.push(change.version());
            columns
                .removes
                .push(matches!(change.value(), ValueChange::Remove));
            let value = match change.value() {
                ValueChange::Put(value) => Some(value),
                ValueChange::Keep | ValueChange::Remove => None,
            };
            let written_with = value.map(|value| super::sql_fence(value.written_with.as_ref()));
            columns
                .content_type
                .push(value.map(|value| value.content.content_type.as_str()));
            columns.bytes.push(value.map(|value| &*value.content.bytes));
            columns
                .value_token
                .push(written_with.and_then(|(token, _)| token));
            columns
                .value_holder
                .push(written_with.map(|(_, holder)| holder));
        }
        columns
    }
}
