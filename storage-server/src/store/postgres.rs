//! Resources in a PostgreSQL database.

mod statements;

use std::{io::ErrorKind, str::FromStr, time::Duration};

use anyhow::Context;
use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, Postgres,
    migrate::Migrator,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{error::Elapsed, timeout};

use self::statements::{apply_changes, load_rows, lock_and_load};
use super::{
    ApplyError, Change, Decide, Listed, Page, Store, Unreachable, Wanted, kept::KeptPool,
    listed_from_sql,
};
use crate::row::Row;

const CONNECTIONS: u32 = 8;
/// How long to try to connect, or to wait for a free connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the answer to a statement before the connection is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What every session sets, whatever the database's own defaults are. `lock_timeout` bounds how long
/// somebody else's lock holds up a batch. The planner plans each statement once, and is kept to the
/// index, as it doesn't know how few rows a batch has.
const SESSION: [(&str, &str); 8] = [
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("lock_timeout", "20ms"),
    ("statement_timeout", "8s"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
];

/// Resources in a PostgreSQL database that any number of servers may share.
///
/// Nearly every statement is a transaction of its own: a server that is paused between two of them
/// holds no lock.
#[derive(Debug)]
pub struct PostgresStore {
    connections: KeptPool<Postgres>,
}

impl PostgresStore {
    /// Connects and applies the migrations.
    ///
    /// # Errors
    /// If the URL or the database can't be used, the database runs with `fsync=off` or is not in
    /// UTF-8, or its schema is newer than this server knows.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(url)
            .context("the database URL is no PostgreSQL URL")?
            .application_name("storage-server")
            .options(SESSION)
            .disable_statement_logging();
        let mut connection =
            options.connect().await.context("can't connect to the PostgreSQL database")?;
        refuse_unsafe(&mut connection).await?;
        // Another server may be migrating at this moment; its lock is waited for.
        connection.execute("set lock_timeout = 0; set statement_timeout = 0").await?;
        super::migrate(&migrator(), &mut connection).await?;
        connection.close().await?;

        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(|connection, _| Box::pin(refuse_unsafe(connection)))
            .connect_lazy_with(options);
        Ok(Self { connections: KeptPool::new(pool) })
    }

    /// Keeps a connection whose statement was answered; closes one that may still be busy with it.
    fn settle<T>(
        &self,
        mut connection: PoolConnection<Postgres>,
        answered: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, sqlx::Error> {
        let answer = answered.unwrap_or_else(|_| Err(no_answer()));
        match answer {
            Ok(_) => self.connections.give_back(connection),
            // After some errors, the session goes on; whether after this one, the pool finds out.
            Err(sqlx::Error::Database(_)) => {}
            Err(_) => connection.close_on_drop(),
        }
        answer
    }
}

fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(ErrorKind::TimedOut, "no answer in time"))
}

async fn refuse_unsafe(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (fsync, encoding): (String, String) =
        sqlx::query_as("select current_setting('fsync'), current_setting('server_encoding')")
            .fetch_one(connection)
            .await?;
    let reason = match (fsync.as_str(), encoding.as_str()) {
        ("on", "UTF8") => return Ok(()),
        ("on", _) => "the database's encoding is not UTF8, and it can't hold every name",
        _ => "PostgreSQL runs with fsync=off, and would forget fences in a crash",
    };
    Err(sqlx::Error::Configuration(reason.into()))
}

/// The migrations, with bookkeeping of their own: a user's may live in the same database.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("migrations/postgres");
    migrator.dangerous_set_table_name("storage.migrations");
    migrator.create_schema("storage");
    migrator
}

#[async_trait]
impl Store for PostgresStore {
    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable> {
        let mut connection = self.connections.take().await?;
        let answered = timeout(ANSWER_TIMEOUT, load_rows(&mut connection, wanted)).await;
        Ok(self.settle(connection, answered)?)
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let mut connection = self.connections.take().await.map_err(ApplyError::Unchanged)?;
        let answered = timeout(ANSWER_TIMEOUT, apply_changes(&mut connection, changes)).await;
        match self.settle(connection, answered) {
            Ok(applied) => Ok(applied),
            Err(error) => failed(error).map(|()| vec![false; changes.len()]),
        }
    }

    /// A transaction that holds the row from before it is loaded until it is changed. PostgreSQL
    /// itself ends it soon if this server should be paused in between.
    async fn apply_under_lock(
        &self,
        wanted: Wanted<'_>,
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        let mut connection = self.connections.take().await.map_err(ApplyError::Unchanged)?;
        let loaded = timeout(ANSWER_TIMEOUT, lock_and_load(&mut connection, wanted)).await;
        let before = match loaded {
            Ok(Ok(row)) => row,
            Ok(Err(error)) => {
                connection.close_on_drop();
                return match failed(error) {
                    // Nothing was sent yet that could have changed anything.
                    Err(ApplyError::Unknown(error)) => Err(ApplyError::Unchanged(error)),
                    failed => failed.map(|()| false),
                };
            }
            Err(_) => {
                connection.close_on_drop();
                return Err(ApplyError::Unchanged(no_answer()));
            }
        };
        let after = decide(&before);
        let change = Change { resource: wanted.resource, before: &before, after: &after };
        let answered = timeout(ANSWER_TIMEOUT, async {
            let applied =
                before == after || apply_changes(&mut connection, &[change]).await? == [true];
            connection.execute("commit").await?;
            Ok(applied)
        });
        let answered = answered.await;
        if !matches!(answered, Ok(Ok(_))) {
            connection.close_on_drop();
        }
        self.settle(connection, answered).or_else(|error| failed(error).map(|()| false))
    }

    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        let resources: Vec<_> = resources.iter().map(|resource| resource.as_str()).collect();
        let locked = sqlx::query_scalar(
            r#"
            with free as materialized (
                select resource
                from storage.resource
                where resource = any($1)
                for no key update skip locked
            )
            select r.resource is not null and free.resource is null
            from unnest($1) with ordinality as w (resource, ordinal)
            left join storage.resource r on r.resource = w.resource
            left join free on free.resource = r.resource
            order by w.ordinal
            "#,
        )
        .bind(resources)
        .fetch_all(self.connections.pool())
        .await?;
        Ok(locked)
    }

    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable> {
        let resources = sqlx::query_as(
            r#"
            select resource, value_token, version, length(bytes)::bigint
            from storage.resource
            where bytes is not null
                and resource > $1 and resource >= $2 and ($3 is null or resource < $3)
            order by resource
            limit $4
            "#,
        )
        .bind(&page.after)
        .bind(&page.prefix)
        .bind(page.prefix_end())
        .bind(i64::from(page.limit))
        .fetch_all(self.connections.pool())
        .await?;
        Ok(resources.into_iter().map(listed_from_sql).collect::<Result<_, _>>()?)
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        sqlx::query("select from storage.resource limit 1")
            .fetch_optional(self.connections.pool())
            .await?;
        Ok(())
    }

    /// PostgreSQL needs no farewell.
    async fn close(&self) {}
}

/// Tells what a failed statement has left behind, by its SQLSTATE. It is no error that a rival went
/// first.
fn failed(error: sqlx::Error) -> Result<(), ApplyError> {
    let sqlstate = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    match &*sqlstate {
        // lock_not_available
        "55P03" => Err(ApplyError::Blocked),
        // serialization_failure, deadlock_detected: a rival went first
        "40001" | "40P01" => Ok(()),
        // No SQLSTATE, or one of a server that crashed or was shut down, perhaps after its commit.
        "" => Err(ApplyError::Unknown(error)),
        // 40003 says so itself: statement_completion_unknown.
        state
            if ["08", "40003", "57P", "58", "XX"].iter().any(|class| state.starts_with(class)) =>
        {
            Err(ApplyError::Unknown(error))
        }
        // Any other error has rolled the statement back.
        _ => Err(ApplyError::Unchanged(error)),
    }
}
