//! The fence inside MariaDB: what its triggers and procedures promise beyond the rule.

mod binary_log;
mod dumps;
mod implicit_commits;
mod installing;
mod protecting;
mod races;
mod rights;
mod snapshots;
mod transactions;
mod variables;
mod writes;

use std::{
    io::{Seek, Write},
    process::Command,
};

use fence::mariadb;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use testbed::MariaDb;

const STALE: &str = "ZF001";
const HOLDER_CONFLICT: &str = "ZF002";
const MALFORMED: &str = "ZF003";
const TOKEN_REQUIRED: &str = "ZF004";

const BALANCE: &str = "select balance from accounts where account_id = 'alice'";

const ACCOUNTS: &[&str] = &[
    "create table accounts (account_id varchar(40) primary key, balance bigint not null)",
    "insert into accounts values ('alice', 100), ('bob', 100)",
];

/// The files of the fence, in order.
const FILES: [&str; 3] = [
    include_str!("../migrations/mariadb/0001_fence.sql"),
    include_str!("../migrations/mariadb/0002_protect.sql"),
    include_str!("../migrations/mariadb/0003_status.sql"),
];

/// A server with the fence, the protected table `accounts` with the rows alice and bob, and
/// alice's fence at token 34 of holder a.
async fn accounts() -> (MariaDb, MySqlConnection) {
    let server = MariaDb::start().await.unwrap();
    let mut database = session(&server).await;
    mariadb::install(&mut database).await.unwrap();
    for statement in ACCOUNTS {
        attempt(&mut database, statement).await.unwrap();
    }
    protect(&mut database, "test.accounts", "account_id").await;
    attempt(&mut database, "call fence.claim('alice', 34, 'a')").await.unwrap();
    (server, database)
}

/// Executes what `fence.protect_sql` prints.
async fn protect(database: &mut MySqlConnection, table: &str, resource: &str) {
    let printed: Vec<String> = sqlx::query_scalar("call fence.protect_sql(?, ?)")
        .bind(table)
        .bind(resource)
        .fetch_all(&mut *database)
        .await
        .unwrap();
    for statement in printed {
        attempt(database, &statement).await.expect(&statement);
    }
}

async fn session(server: &MariaDb) -> MySqlConnection {
    MySqlConnection::connect(&server.url()).await.unwrap()
}

/// Runs a statement, and returns how many rows it touched, or else the SQLSTATE.
async fn attempt(database: &mut MySqlConnection, statement: &str) -> Result<u64, String> {
    let done = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(database).await;
    match done {
        Ok(done) => Ok(done.rows_affected()),
        Err(error) => {
            let database_error = error.as_database_error();
            Err(database_error.and_then(|error| error.code()).expect(statement).into_owned())
        }
    }
}

/// Runs statements in one transaction, which is rolled back, and returns the first error.
async fn attempt_all(database: &mut MySqlConnection, statements: &[&str]) -> Result<(), String> {
    attempt(database, "begin").await.unwrap();
    let mut done = Ok(());
    for statement in statements {
        done = attempt(database, statement).await.map(|_| ());
        if done.is_err() {
            break;
        }
    }
    attempt(database, "rollback").await.unwrap();
    done
}

async fn number(database: &mut MySqlConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(database).await.unwrap()
}

/// Runs the `mariadb` command with a script, and with the delimiter that the files need.
fn run(server: &MariaDb, database: &str, script: &str) -> Result<String, String> {
    mariadb_command(server, script, &["--delimiter=//", database])
}

/// Runs the `mariadb` command with a script as its input, and returns what it prints.
fn mariadb_command(server: &MariaDb, script: &str, options: &[&str]) -> Result<String, String> {
    let mut input = tempfile::tempfile().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    input.rewind().unwrap();
    let mut command = Command::new("mariadb");
    command.arg("--no-defaults").arg(format!("--socket={}", server.socket().display()));
    command.args(["--user=root", "--batch", "--raw", "--skip-column-names"]).args(options);
    let output = command.stdin(input).output().expect("mariadb-client has the command mariadb");
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
