//! Locks in the tables of a database.

use std::sync::Arc;

use async_trait::async_trait;
use lock_client::{backend::Backend, mariadb, postgres, sqlite};
use sqlx::{
    AnyConnection, ConnectOptions, Connection, MySqlConnection, PgConnection,
    sqlite::SqliteConnectOptions,
};
use tempfile::TempDir;
use testbed::{MariaDb, Postgres};
use tokio::sync::Mutex;

use super::service::{ANSWER_TIMEOUT, About, Durable, Service};
use crate::bench::{
    load::pgbench_times,
    subject::{Subject, Times},
    work::Work,
};

const SQLITE_FILE: &str = "locks.db";

/// A private database, and a connection to it.
pub(super) struct Database {
    server: Server,
    connection: Mutex<AnyConnection>,
}

enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
    Sqlite(TempDir),
}

impl Database {
    pub(super) async fn postgres() -> anyhow::Result<Self> {
        let settings = ["shared_preload_libraries=pg_stat_statements"];
        let postgres = Postgres::start_with(&settings).await?;
        postgres::install(&mut PgConnection::connect(&postgres.url()).await?).await?;
        let prepare = "
            create extension pg_stat_statements;
            create table least (name text primary key, value bigint not null) with (fillfactor = 50);";
        Self::open(Server::Postgres(postgres), prepare).await
    }

    pub(super) async fn mariadb() -> anyhow::Result<Self> {
        let mariadb = MariaDb::start().await?;
        mariadb::install(&mut MySqlConnection::connect(&mariadb.url()).await?).await?;
        let prepare = "create table least (name varchar(40) primary key, value bigint not null)";
        Self::open(Server::MariaDb(mariadb), prepare).await
    }

    pub(super) async fn sqlite() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let options = SqliteConnectOptions::new().filename(folder.path().join(SQLITE_FILE));
        sqlite::install(&mut options.create_if_missing(true).connect().await?).await?;
        let prepare = "
            pragma journal_mode = wal;
            pragma synchronous = full;
            create table least (name text primary key, value integer not null) strict";
        Self::open(Server::Sqlite(folder), prepare).await
    }

    async fn open(server: Server, prepare: &'static str) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let mut connection = AnyConnection::connect(&server.url()).await?;
        sqlx::raw_sql(prepare).execute(&mut connection).await?;
        Ok(Self { server, connection: Mutex::new(connection) })
    }

    /// Two upserts, each of which is durable before its answer.
    async fn upsert_twice(&self) -> anyhow::Result<()> {
        let connection = &mut *self.connection.lock().await;
        for _ in 0..2 {
            sqlx::query(self.server.upsert()).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl Server {
    fn url(&self) -> String {
        match self {
            Self::Postgres(postgres) => postgres.url(),
            Self::MariaDb(mariadb) => mariadb.url(),
            Self::Sqlite(folder) => {
                format!("sqlite://{}", folder.path().join(SQLITE_FILE).display())
            }
        }
    }

    /// InnoDB skips an update that changes nothing, so this changes the value.
    fn upsert(&self) -> &'static str {
        match self {
            Self::Postgres(_) => {
                "insert into least as l values ('same', 1) \
                 on conflict (name) do update set value = l.value + 1"
            }
            Self::MariaDb(_) => {
                "insert into least values ('same', 1) on duplicate key update value = value + 1"
            }
            Self::Sqlite(_) => {
                "begin immediate;
                 insert into least values ('same', 1)
                 on conflict (name) do update set value = value + 1;
                 commit"
            }
        }
    }
}

#[async_trait]
impl Service for Database {
    fn url(&self) -> String {
        self.server.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        let url = self.url();
        let backend: Arc<dyn Backend> = match self.server {
            Server::Postgres(_) => {
                Arc::new(postgres::Postgres::open(&url)?.answer_within(ANSWER_TIMEOUT))
            }
            Server::MariaDb(_) => {
                Arc::new(mariadb::MariaDb::open(&url)?.answer_within(ANSWER_TIMEOUT))
            }
            Server::Sqlite(_) => {
                Arc::new(sqlite::Sqlite::open(&url)?.answer_within(ANSWER_TIMEOUT))
            }
        };
        Ok(backend)
    }

    async fn round_trip(&self) -> anyhow::Result<()> {
        let connection = &mut *self.connection.lock().await;
        match self.server {
            Server::Sqlite(_) => {
                sqlx::raw_sql("select value from least").execute(connection).await?
            }
            _ => sqlx::query("select 1").execute(connection).await?,
        };
        Ok(())
    }

    async fn work(&self) -> anyhow::Result<Option<Work>> {
        let commands = match self.server {
            // All statements but the holders' reads, and those of the bench itself.
            Server::Postgres(_) => {
                "select coalesce(sum(calls), 0)::bigint from pg_stat_statements
                 where query <> 'select $1' and query not like '%pg_stat_statements%'"
            }
            Server::MariaDb(_) => {
                "select cast(variable_value as signed) from information_schema.global_status
                 where variable_name = 'COM_CALL_PROCEDURE'"
            }
            Server::Sqlite(_) => return Ok(None),
        };
        let connection = &mut *self.connection.lock().await;
        let commands: i64 = sqlx::query_scalar(commands).fetch_one(connection).await?;
        Ok(Some(Work::of_commands(commands.try_into()?)))
    }
}

impl Durable for Database {
    fn about(&self) -> About {
        match self.server {
            Server::Postgres(_) => About {
                name: "postgres",
                title: "PostgreSQL, over a Unix socket",
                command: "statements that PostgreSQL carried out, other than the holders' reads",
                goal_of_least: 1.5,
            },
            Server::MariaDb(_) => About {
                name: "mariadb",
                title: "MariaDB, over a Unix socket",
                command: "calls of procedures in MariaDB",
                goal_of_least: 1.5,
            },
            Server::Sqlite(_) => About {
                name: "sqlite",
                title: "a file of SQLite",
                command: "requests of our client",
                goal_of_least: 1.3,
            },
        }
    }

    fn beside(&self, acquires: usize) -> Vec<Subject<'_, Times>> {
        let upserts = |name| Subject::timed(name, acquires, move || self.upsert_twice());
        let read = Subject::timed("a read by sqlx", acquires, move || self.round_trip());
        match &self.server {
            Server::Postgres(postgres) => {
                let by_pgbench = move |count| async move {
                    let script = [self.server.upsert(); 2].join(";\n") + ";\n";
                    let times = pgbench_times(postgres, &script, count).await?;
                    Ok(Times { times, work: Vec::new() })
                };
                let least = Subject::new("two upserts by pgbench", acquires, by_pgbench);
                vec![least, read, upserts("two upserts by sqlx")]
            }
            Server::MariaDb(_) => vec![upserts("two upserts by sqlx"), read],
            Server::Sqlite(_) => {
                vec![upserts("two immediate transactions with an upsert by sqlx"), read]
            }
        }
    }
}
