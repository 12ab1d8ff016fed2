//! The fence inside SQLite: what its views and triggers promise beyond the rule.

mod connections;
mod copying;
mod installing;
mod keeping;
mod presenting;
mod protecting;
mod rebuilding;
mod reporting;
mod syncing;
mod writes;

use std::{path::Path, process::Command, str::FromStr, time::Duration};

use fence::{ClaimError, Fence, RejectionReason, sqlite};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions,
};
use tempfile::TempDir;

use crate::names::{name, token};

const STALE: &str = "ZF001";
const HOLDER_CONFLICT: &str = "ZF002";
const MALFORMED: &str = "ZF003";
const TOKEN_REQUIRED: &str = "ZF004";
const NOT_REMOVED: &str = "ZF005";
const SETTING_NEEDED: &str = "ZF006";

const PRESENT: &str =
    "insert into fence_presented (resource, token, holder) values ('alice', 34, 'a');";
const WITHDRAW: &str = "delete from fence_presented;";
const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice';";

const ACCOUNTS: &str = "
    create table accounts (account_id text primary key, balance integer not null default 0);
    insert into accounts values ('alice', 100), ('bob', 100);
    create trigger accounts_fence_insert after insert on accounts
    begin insert into fence_require values ('accounts', new.account_id); end;
    create trigger accounts_fence_update after update on accounts
    begin
        insert into fence_require values ('accounts', old.account_id), ('accounts', new.account_id);
    end;
    create trigger accounts_fence_delete after delete on accounts
    begin insert into fence_require values ('accounts', old.account_id); end;
    insert into fence_claim values ('alice', 34, 'a');";

/// The settings that the fence needs of a connection. sqlx turns foreign keys on by itself.
fn settings(url: &str) -> SqliteConnectOptions {
    SqliteConnectOptions::from_str(url).unwrap().pragma("recursive_triggers", "on")
}

fn settings_of(file: &Path) -> SqliteConnectOptions {
    let options = settings(&format!("sqlite:{}", file.display()));
    options.create_if_missing(true).busy_timeout(Duration::from_secs(30))
}

/// A database with the fence, the protected table `accounts` with the rows alice and bob, and
/// alice's fence at token 34 of holder a.
async fn accounts() -> SqliteConnection {
    let mut database = settings("sqlite::memory:").connect().await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    database
}

/// Runs statements, and returns an error by its first word.
async fn attempt(database: &mut SqliteConnection, statements: &str) -> Result<(), String> {
    let done = sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(database).await;
    done.map(|_| ()).map_err(|error| {
        let message = error.as_database_error().expect(statements).message().to_owned();
        message.split(' ').next().unwrap_or_default().to_owned()
    })
}

/// The same in a transaction that is rolled back.
async fn attempt_and_roll_back(
    database: &mut SqliteConnection,
    statements: &str,
) -> Result<(), String> {
    attempt(database, "begin immediate").await.unwrap();
    let done = attempt(database, statements).await;
    attempt(database, "rollback").await.unwrap();
    done
}

/// Executes what the database prints for its protected tables, as a tool for migrations does.
async fn execute_printed_sql(database: &mut SqliteConnection) -> Result<(), String> {
    attempt(database, "begin immediate").await.unwrap();
    for statement in texts(database, "select sql from fence_protect_sql").await {
        if let Err(error) = attempt(database, &statement).await {
            attempt(database, "rollback").await.unwrap();
            return Err(error);
        }
    }
    attempt(database, "commit").await
}

/// Runs statements in the shell of SQLite, and returns what it prints.
fn shell(file: &Path, statements: &str) -> String {
    let output = Command::new("sqlite3").arg("-bail").arg(file).arg(statements).output();
    let output = output.expect("sqlite3 is installed; the package sqlite3 has it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The rows of a query for one column of text.
async fn texts(database: &mut SqliteConnection, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(database).await.unwrap()
}

/// The problem that `fence_status` shows of the table `accounts`, or nothing.
async fn problem(database: &mut SqliteConnection) -> String {
    let problem = "
        select coalesce(problem, '') from fence_status where protected = 'accounts'";
    sqlx::query_scalar(problem).fetch_one(database).await.unwrap()
}

async fn number(database: &mut SqliteConnection, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(database).await.unwrap()
}

/// Presents a token and a holder for alice, and the same for carol.
fn presented(token: u64, holder: &str) -> String {
    let present = |resource: &str| {
        format!(
            "insert into fence_presented (resource, token, holder)
             values ('{resource}', {token}, '{holder}');"
        )
    };
    present("alice") + &present("carol")
}
