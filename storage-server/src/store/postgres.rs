//! Resources in a PostgreSQL database.

mod statements;

use std::{io::ErrorKind, str::FromStr, time::Duration};

use async_trait::async_trait;
use fence::ResourceName;
use sqlx::{
    ConnectOptions, Connection, Executor, PgConnection, Postgres,
    migrate::Migrator,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{error::Elapsed, timeout};

use self::statements::{apply_changes, list_rows, load_rows, lock_and_load, locked_rows};
use super::{
    Change, Decide, Store, Wanted,
    error::{ApplyError, OpenError, Unreachable},
    kept_pool::KeptPool,
    list::{Listed, Page},
    schema::migrate,
};
use crate::row::Row;

const CONNECTIONS: u32 = 8;
/// How long to try to connect, or to wait for a free connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the answer to a statement before the connection is closed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of every session, whatever the database's own defaults are.
///
/// `lock_timeout` bounds how long another transaction's lock delays a batch. The planner plans each
/// statement once, without knowing how few rows a batch has, so it is restricted to the index.
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
/// Nearly every statement is a transaction of its own, so a server that is paused between two
/// statements holds no lock.
#[derive(Debug)]
pub(super) struct PostgresStore {
    address: String,
    connections: KeptPool<Postgres>,
}

impl PostgresStore {
    /// Connects and applies the migrations.
    pub(super) async fn connect(url: &str) -> Result<Self, OpenError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(OpenError::InvalidUrl)?
            .application_name("storage-server")
            .options(SESSION)
            .disable_statement_logging();
        let address = address(&options);
        let connect_error = |source| OpenError::Connect { database: address.clone(), source };

        let mut connection = options.connect().await.map_err(connect_error)?;
        if let Some(reason) = unsafe_setting(&mut connection).await.map_err(connect_error)? {
            return Err(OpenError::Unsafe { database: address, reason: reason.to_owned() });
        }
        // Migrations wait for another server that migrates at this moment.
        let patient = "set lock_timeout = 0; set statement_timeout = 0";
        connection.execute(patient).await.map_err(connect_error)?;
        migrate(&migrator(), &mut connection, &address).await?;
        connection.close().await.map_err(connect_error)?;

        // The settings are checked again for each connection: the server may have been restarted.
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async {
                    let reason = unsafe_setting(connection).await?;
                    reason.map_or(Ok(()), |reason| Err(sqlx::Error::Configuration(reason.into())))
                })
            })
            .connect_lazy_with(options);
        Ok(Self { address, connections: KeptPool::new(pool) })
    }

    /// Keeps the connection if its statement was answered. Closes it if the statement may still be
    /// running.
    fn keep_or_close<T>(
        &self,
        mut connection: PoolConnection<Postgres>,
        answered: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, sqlx::Error> {
        let answer = answered.unwrap_or_else(|_| Err(no_answer()));
        match answer {
            Ok(_) => self.connections.keep(connection),
            // The session may have survived this error or not: the pool pings it on its return.
            Err(sqlx::Error::Database(_)) => {}
            Err(_) => connection.close_on_drop(),
        }
        answer
    }
}

/// The address of the database, without user and password.
fn address(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or(options.get_username());
    format!("PostgreSQL database {database} at {host}:{}", options.get_port())
}

fn no_answer() -> sqlx::Error {
    let timeout = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
    sqlx::Error::Io(std::io::Error::new(ErrorKind::TimedOut, timeout))
}

/// Why the database would not keep fences safely, if so.
async fn unsafe_setting(
    connection: &mut PgConnection,
) -> Result<Option<&'static str>, sqlx::Error> {
    let (fsync, encoding): (String, String) =
        sqlx::query_as("select current_setting('fsync'), current_setting('server_encoding')")
            .fetch_one(connection)
            .await?;
    Ok(match (fsync.as_str(), encoding.as_str()) {
        ("on", "UTF8") => None,
        ("on", _) => Some("its encoding is not UTF8, so it can't hold every name"),
        _ => Some("PostgreSQL runs with fsync=off, and would lose fences in a crash"),
    })
}

/// The migrations. They have a bookkeeping table of their own, because the database may also have a
/// user's migrations.
fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("migrations/postgres");
    migrator.dangerous_set_table_name("storage.migrations");
    migrator.create_schema("storage");
    migrator
}

#[async_trait]
impl Store for PostgresStore {
    fn database(&self) -> &str {
        &self.address
    }

    async fn load(&self, wanted: &[Wanted<'_>]) -> Result<Vec<Row>, Unreachable> {
        let mut connection = self.connections.take().await?;
        let answered = timeout(ANSWER_TIMEOUT, load_rows(&mut connection, wanted)).await;
        Ok(self.keep_or_close(connection, answered)?)
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        let mut connection = self.connections.take().await.map_err(ApplyError::Unchanged)?;
        let answered = timeout(ANSWER_TIMEOUT, apply_changes(&mut connection, changes)).await;
        self.keep_or_close(connection, answered)
            .or_else(|error| lost_race(error).map(|LostRace| vec![false; changes.len()]))
    }

    /// A transaction that locks the row before it loads it, until it has changed it. If this server
    /// is paused in between, PostgreSQL itself soon ends the transaction.
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
                return match lost_race(error) {
                    // No statement has been sent yet that could change anything.
                    Err(ApplyError::Unknown(error)) => Err(ApplyError::Unchanged(error)),
                    other => other.map(|LostRace| false),
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
        self.keep_or_close(connection, answered)
            .or_else(|error| lost_race(error).map(|LostRace| false))
    }

    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        Ok(locked_rows(self.connections.pool(), resources).await?)
    }

    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable> {
        Ok(list_rows(self.connections.pool(), page).await?)
    }

    async fn ping(&self) -> Result<(), Unreachable> {
        sqlx::query("select from storage.resource limit 1")
            .fetch_optional(self.connections.pool())
            .await?;
        Ok(())
    }

    /// PostgreSQL needs no cleanup.
    async fn close(&self) {}
}

/// A rival's transaction was faster, and nothing was changed.
struct LostRace;

/// What a failed statement left behind, by its SQLSTATE. A lost race is no error.
fn lost_race(error: sqlx::Error) -> Result<LostRace, ApplyError> {
    let sqlstate = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
    match &*sqlstate {
        // lock_not_available
        "55P03" => Err(ApplyError::Blocked),
        // serialization_failure, deadlock_detected
        "40001" | "40P01" => Ok(LostRace),
        // No SQLSTATE: the connection is lost, perhaps after the commit.
        "" => Err(ApplyError::Unknown(error)),
        // The server crashed or was shut down, perhaps after the commit; or 40003, which is
        // statement_completion_unknown.
        state
            if ["08", "40003", "57P", "58", "XX"].iter().any(|class| state.starts_with(class)) =>
        {
            Err(ApplyError::Unknown(error))
        }
        // Every other error has rolled the statement back.
        _ => Err(ApplyError::Unchanged(error)),
    }
}
