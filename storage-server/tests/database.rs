//! A database without a server, and the commands on it.

use std::{path::PathBuf, process::Command, time::Duration};

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{ObjectStorage, Postgres, StorageServer, process::Process};

use crate::{
    programs::{STORAGE_SERVER, storage_server},
    wire::{self, Answer},
};

const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs each test on an empty database, of SQLite and of PostgreSQL.
macro_rules! on_empty_databases {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::database::Database::sqlite()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test($crate::database::Database::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_empty_databases;

/// An empty database.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) folder: TempDir,
    /// None where the database is SQLite.
    pub(crate) postgres: Option<Postgres>,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let folder = TempDir::with_prefix("fenced-").unwrap();
        let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
        Self { url, folder, postgres: None }
    }

    pub(crate) async fn postgres() -> Self {
        let postgres = Postgres::start().await.unwrap();
        let folder = TempDir::with_prefix("fenced-").unwrap();
        Self { url: postgres.url(), folder, postgres: Some(postgres) }
    }

    /// The PostgreSQL database behind a socket in a folder, which carries the connections.
    pub(crate) fn behind(socket: TempDir) -> Self {
        let url = format!(
            "postgres://postgres@localhost/postgres?sslmode=disable&host={}",
            socket.path().display()
        );
        Self { url, folder: socket, postgres: None }
    }

    /// A file in the folder of the SQLite file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn serve(&self, arguments: &[&str]) -> StorageServer {
        StorageServer::start_on(&storage_server(), &self.url, arguments).await.unwrap()
    }

    /// Creates the tables, and inserts rows into them that their guards would reject.
    pub(crate) async fn insert_by_hand(&self, insert: &str) {
        self.run(&["migrate"]).await.printed();
        let unguarded = match self.postgres {
            Some(_) => format!("set storage.is_server = 'on'; {insert}"),
            None => format!("drop trigger storage.resource_insert; {insert}"),
        };
        self.execute(&unguarded).await.unwrap();
    }

    /// Runs SQL. Its tables have PostgreSQL's names.
    pub(crate) async fn execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        if self.postgres.is_some() {
            let mut connection = PgConnection::connect(&self.url).await?;
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await?;
        } else {
            let sql = sql.replace("storage.", "storage_");
            let mut connection = SqliteConnection::connect(&self.url).await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
            connection.close().await?;
        }
        Ok(())
    }

    /// Runs a command of the storage server to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        let folder = TempDir::with_prefix("fenced-").unwrap();
        let mut command = Command::new(STORAGE_SERVER);
        command.args(["--database-url", &self.url]).args(arguments);
        command.envs(ObjectStorage::VARIABLES).current_dir(self.folder.path());
        let mut process = Process::spawn("storage-server", &command, folder.path()).unwrap();
        let status = process.exit(END_TIMEOUT).await.unwrap();
        let mut stdout = String::new();
        while let Ok(line) = process.line(END_TIMEOUT).await {
            stdout += &format!("{line}\n");
        }
        Ran { code: status.code(), stdout, stderr: process.stderr().unwrap() }
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// What it printed, after its success.
    pub(crate) fn printed(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Its error, after its failure.
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.stderr
    }
}

/// Sends a request with a token, and a body if it is not empty.
pub(crate) async fn offer(
    server: &StorageServer,
    method: &str,
    path: &str,
    token: u64,
    body: &str,
) -> Answer {
    let token = token.to_string();
    wire::request(server.url(), method, path, &[("Fencing-Token", &token)], body).await
}

/// Sends a request without a token.
pub(crate) async fn get(server: &StorageServer, path: &str) -> Answer {
    wire::request(server.url(), "GET", path, &[], "").await
}
