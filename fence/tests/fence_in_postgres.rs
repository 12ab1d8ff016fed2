//! The fence inside PostgreSQL: every change of a protected table needs a valid token.

mod columns;
mod forging;
mod installing;
mod isolation;
mod owners;
mod partitions;
mod protecting;
mod removing;
mod reporting;
mod restoring;
mod roles;
mod search_path;
mod transactions;
mod trigger_right;
mod writes;

use std::{fs, path::PathBuf, process::Command, time::Duration};

use fence::postgres;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testbed::Postgres;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(10);

const STALE: &str = "ZF001";
const HOLDER_CONFLICT: &str = "ZF002";
const MALFORMED: &str = "ZF003";
const TOKEN_REQUIRED: &str = "ZF004";
const TRUNCATE_REJECTED: &str = "ZF005";
const NO_PRIVILEGE: &str = "42501";

/// A server with the fence, the protected table `accounts` with the rows alice and bob, and
/// alice's fence at token 34 of holder a.
async fn accounts() -> (Postgres, PgConnection) {
    let (server, mut database) = fence().await;
    let setup = "
        create table accounts (account_id text primary key, balance bigint not null default 0);
        insert into accounts values ('alice', 100), ('bob', 100);
        select fence.protect('accounts', 'account_id');
        select fence.claim('alice', 34, 'a');";
    attempt(&mut database, setup).await.unwrap();
    (server, database)
}

/// A server with the fence.
async fn fence() -> (Postgres, PgConnection) {
    let server = Postgres::start().await.unwrap();
    let mut database = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut database).await.unwrap();
    (server, database)
}

/// The files that make up the fence, in their order.
fn files() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Applies files as migrations/README.md says. Returns what psql printed, or else its error.
fn psql(url: &str, files: &[PathBuf]) -> Result<String, String> {
    let mut psql = Command::new("psql");
    psql.args(["--set", "ON_ERROR_STOP=1", "--single-transaction", "--no-psqlrc", "--quiet"]);
    for file in files {
        psql.arg("--file").arg(file);
    }
    let output = psql.arg(url).output().expect("the package postgresql-client has psql");
    let printed = String::from_utf8(output.stderr).unwrap();
    if output.status.success() { Ok(printed) } else { Err(printed) }
}

/// What psql prints besides the result of a statement: warnings, errors, hints.
fn messages(server: &Postgres, statement: &str) -> String {
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--command", statement]).arg(server.url());
    String::from_utf8(psql.output().expect("postgresql-client has psql").stderr).unwrap()
}

async fn session(server: &Postgres) -> PgConnection {
    PgConnection::connect(&server.url()).await.unwrap()
}

async fn session_of(server: &Postgres, role: &str) -> PgConnection {
    let url = server.url().replace("postgres://postgres@", &format!("postgres://{role}@"));
    PgConnection::connect(&url).await.unwrap()
}

/// Runs statements, all in one transaction unless they begin one themselves, and returns how many
/// rows they touched, or else the SQLSTATE.
async fn attempt(database: &mut PgConnection, statements: &str) -> Result<u64, String> {
    let done = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(database).await;
    match done {
        Ok(done) => Ok(done.rows_affected()),
        Err(error) => {
            let database_error = error.as_database_error();
            Err(database_error.and_then(|error| error.code()).expect(statements).into_owned())
        }
    }
}

/// The same in a transaction that is rolled back.
async fn attempt_and_roll_back(
    database: &mut PgConnection,
    statements: &str,
) -> Result<u64, String> {
    attempt(database, "begin").await.unwrap();
    let done = attempt(database, statements).await;
    attempt(database, "rollback").await.unwrap();
    done
}

async fn number(database: &mut PgConnection, query: &str) -> i64 {
    let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    query.persistent(false).fetch_one(database).await.unwrap()
}

async fn is_true(database: &mut PgConnection, query: &str) -> bool {
    let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
    query.persistent(false).fetch_one(database).await.unwrap()
}

/// What `fence.status` finds wrong with a table.
async fn problem(database: &mut PgConnection, table: &str) -> Option<String> {
    let problem = "select problem from fence.status where protected = 'public.' || $1";
    sqlx::query_scalar(problem).bind(table).fetch_one(database).await.unwrap()
}

/// Waits until the session waits for another session's lock.
async fn until_it_waits(watcher: &mut PgConnection, session: i64) {
    let waits = format!("select cardinality(pg_blocking_pids({session})) > 0");
    let waiting = async {
        while !is_true(watcher, &waits).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}

async fn pid(database: &mut PgConnection) -> i64 {
    number(database, "select pg_backend_pid()::bigint").await
}
