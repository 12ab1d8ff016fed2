//! The fence inside MariaDB: what its triggers and procedures promise beyond the rule.

mod installing;
mod transactions;
mod writes;

use std::{path::PathBuf, process::Command};

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
    "create trigger accounts_fence_insert after insert on accounts
     for each row call fence_require(new.account_id)",
    "create trigger accounts_fence_update after update on accounts
     for each row call fence_require_both(old.account_id, new.account_id)",
    "create trigger accounts_fence_delete after delete on accounts
     for each row call fence_require(old.account_id)",
    "call fence_claim('alice', 34, 'a')",
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
    (server, database)
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

/// Runs the `mariadb` command with a file as its input.
fn mariadb_command(server: &MariaDb, input: &PathBuf, options: &[&str]) -> Result<(), String> {
    let mut command = Command::new("mariadb");
    command.arg("--no-defaults").arg(format!("--socket={}", server.socket().display()));
    command.arg("--user=root").args(options).arg("test");
    command.stdin(std::fs::File::open(input).unwrap());
    let output = command.output().expect("mariadb is installed; mariadb-client has it");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
