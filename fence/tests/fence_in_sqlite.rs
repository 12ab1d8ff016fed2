//! The fence inside SQLite: what its views and triggers promise beyond the rule.

use std::{path::Path, process::Command, str::FromStr, time::Duration};

use fence::{ClaimError, Fence, RefusalReason, sqlite};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions,
};
use tempfile::TempDir;

use crate::names::{name, token};

const STALE: &str = "ZF001";
const HOLDER_CONFLICT: &str = "ZF002";
const MALFORMED: &str = "ZF003";
const TOKEN_REQUIRED: &str = "ZF004";
const SETTING_NEEDED: &str = "ZF006";

const PRESENT: &str =
    "insert into fence_presented (resource, token, holder) values ('alice', 34, 'a');";
const WITHDRAW: &str = "delete from fence_presented;";
const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice';";

const ACCOUNTS: &str = "
    create table accounts (account_id text primary key, balance integer not null default 0);
    insert into accounts values ('alice', 100), ('bob', 100);
    create trigger accounts_fence_insert after insert on accounts
    begin insert into fence_require values (new.account_id); end;
    create trigger accounts_fence_update after update on accounts
    begin insert into fence_require values (old.account_id), (new.account_id); end;
    create trigger accounts_fence_delete after delete on accounts
    begin insert into fence_require values (old.account_id); end;
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

#[tokio::test]
async fn no_kind_of_write_passes_without_a_valid_token() {
    let mut database = accounts().await;
    let setup = "
        insert into fence_claim values ('carol', 34, 'a');
        create table owners (owner_id text primary key);
        insert into owners values ('alice');
        create table entries (
            entry_id integer primary key, owner_id text references owners on delete cascade
        );
        insert into entries values (1, 'alice');
        create trigger entries_fence_delete after delete on entries
        begin insert into fence_require values (old.owner_id); end;";
    attempt(&mut database, setup).await.unwrap();
    let writes = [
        "insert into accounts values ('carol', 7)",
        "insert or ignore into accounts values ('carol', 7)",
        "insert or replace into accounts values ('carol', 7)",
        "insert or replace into accounts values ('alice', 7)",
        "replace into accounts values ('alice', 7)",
        "insert or rollback into accounts values ('carol', 7)",
        "insert or fail into accounts values ('carol', 7)",
        "insert into accounts values ('alice', 7) on conflict do update set balance = 7",
        "update accounts set balance = 7 where account_id = 'alice'",
        "update or ignore accounts set balance = 7 where account_id = 'alice'",
        "update or replace accounts set account_id = 'alice' where account_id = 'alice'",
        "update accounts set balance = o.rowid from owners o where account_id = o.owner_id",
        "delete from accounts where account_id = 'alice'",
        "delete from owners",
    ];
    for write in writes {
        for (offered, expected) in [
            (String::new(), Err(TOKEN_REQUIRED)),
            (presented(33, "a"), Err(STALE)),
            (presented(34, "b"), Err(HOLDER_CONFLICT)),
            (presented(34, ""), Err(HOLDER_CONFLICT)),
            (presented(34, "a"), Ok(())),
            (presented(35, "b"), Ok(())),
        ] {
            let done = attempt_and_roll_back(&mut database, &format!("{offered}{write}")).await;
            assert_eq!(done.as_ref().copied().map_err(String::as_str), expected, "{write}");
        }
    }
    assert_eq!(number(&mut database, "select sum(balance) from accounts").await, 200);

    // The negative control: without the triggers, each of them passes.
    let unprotected = "
        drop trigger accounts_fence_insert; drop trigger accounts_fence_update;
        drop trigger accounts_fence_delete; drop trigger entries_fence_delete;";
    attempt(&mut database, unprotected).await.unwrap();
    for write in writes {
        attempt_and_roll_back(&mut database, write).await.expect(write);
    }
}

#[tokio::test]
async fn moved_row_needs_the_tokens_of_both_resources_and_leaves_each_its_own() {
    let mut database = accounts().await;
    attempt(&mut database, "insert into fence_claim values ('carol', 50, 'c')").await.unwrap();
    let carol = "insert into fence_presented (resource, token, holder) values ('carol', 50, 'c');";
    let moved = "update accounts set account_id = 'carol' where account_id = 'alice';";
    for presented in [PRESENT, carol] {
        let write = format!("{presented}{moved}");
        let refused = attempt_and_roll_back(&mut database, &write).await;
        assert_eq!(refused.unwrap_err(), TOKEN_REQUIRED, "{presented}");
    }
    let write = format!("begin immediate; {PRESENT}{carol}{moved}{WITHDRAW} commit");
    attempt(&mut database, &write).await.unwrap();
    for (fence, token) in [
        ("select token from fence where resource = 'alice' and holder = 'a'", 34),
        ("select token from fence where resource = 'carol' and holder = 'c'", 50),
    ] {
        assert_eq!(number(&mut database, fence).await, token);
    }
}

#[tokio::test]
async fn presented_token_can_not_be_changed() {
    let mut database = accounts().await;
    for change in [
        "update fence_presented set resource = 'bob'",
        "insert into fence_presented (resource, token, holder) values ('alice', 34, 'a')
         on conflict do update set resource = 'bob'",
    ] {
        let refused = attempt_and_roll_back(&mut database, &format!("{PRESENT}{change}")).await;
        assert_eq!(refused.unwrap_err(), TOKEN_REQUIRED, "{change}");
    }
}

#[tokio::test]
async fn presented_token_must_be_withdrawn_before_the_commit() {
    let mut database = accounts().await;
    attempt(&mut database, "begin immediate").await.unwrap();
    attempt(&mut database, &format!("{PRESENT}{UPDATE}")).await.unwrap();
    assert_eq!(attempt(&mut database, "commit").await.unwrap_err(), "FOREIGN");
    attempt(&mut database, WITHDRAW).await.unwrap();
    attempt(&mut database, "commit").await.unwrap();
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);

    // It does not reach the next transaction in another way either.
    for (begin, end) in [
        ("begin immediate", "rollback"),
        ("savepoint s", "rollback to s; release s"),
        ("begin; savepoint s", "rollback to s"),
    ] {
        attempt(&mut database, &format!("{begin}; {PRESENT}{UPDATE} {end}")).await.unwrap();
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED, "{begin}");
        let _ = attempt(&mut database, "rollback").await;
    }
    let released = format!("savepoint s; {PRESENT}{UPDATE} release s");
    assert_eq!(attempt(&mut database, &released).await.unwrap_err(), "FOREIGN");
    attempt(&mut database, "rollback").await.unwrap();
    assert_eq!(attempt(&mut database, PRESENT).await.unwrap_err(), "FOREIGN");
    let unchecked = format!("begin; {PRESENT} pragma foreign_keys = off; commit");
    assert_eq!(attempt(&mut database, &unchecked).await.unwrap_err(), "FOREIGN");
    attempt(&mut database, "rollback").await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from fence_presented").await, 0);
}

#[tokio::test]
async fn present_and_withdraw_of_the_library_frame_the_writes() {
    let mut database = accounts().await;
    let mut transaction = database.begin_with("begin immediate").await.unwrap();
    let offered = |number| Fence { token: token(number), holder: "a".parse().unwrap() };
    sqlite::present(&mut transaction, &name("alice"), &offered(34)).await.unwrap();
    attempt(&mut transaction, UPDATE).await.unwrap();
    sqlite::withdraw(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();

    let mut transaction = database.begin_with("begin immediate").await.unwrap();
    let refused = sqlite::present(&mut transaction, &name("alice"), &offered(33)).await;
    let Err(ClaimError::Refused { refusal, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((refusal.reason, refusal.highest_token), (RefusalReason::Stale, token(34)));
    transaction.rollback().await.unwrap();
    let claimed = sqlite::claim(&mut database, &name("alice"), &offered(33)).await;
    let Err(ClaimError::Refused { refusal, .. }) = claimed else { panic!("{claimed:?}") };
    assert_eq!(refusal.highest_token, token(34));
}

#[tokio::test]
async fn connection_without_its_settings_can_not_write() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let mut database = settings_of(&file).connect().await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    for setting in ["foreign_keys", "recursive_triggers"] {
        let mut careless = settings_of(&file).pragma(setting, "off").connect().await.unwrap();
        for write in [
            UPDATE,
            "replace into accounts values ('alice', 7)",
            "delete from accounts",
            "insert into accounts values ('carol', 7)",
        ] {
            let write = format!("{PRESENT}{write}");
            let refused = attempt_and_roll_back(&mut careless, &write).await;
            assert_eq!(refused.unwrap_err(), SETTING_NEEDED, "{setting}");
        }
    }
    // A token that a connection without foreign keys presents does not stay for others.
    let mut careless = settings_of(&file).pragma("foreign_keys", "off").connect().await.unwrap();
    assert_eq!(attempt(&mut careless, PRESENT).await.unwrap_err(), SETTING_NEEDED);
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn second_writer_waits_and_sees_what_the_first_wrote() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let mut first = settings_of(&file).connect().await.unwrap();
    sqlite::install(&mut first).await.unwrap();
    attempt(&mut first, ACCOUNTS).await.unwrap();
    let mut second = settings_of(&file).connect().await.unwrap();
    let write = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW}");
    attempt(&mut first, &write).await.unwrap();

    let waiting = tokio::spawn(async move {
        let claim = "begin immediate; insert into fence_claim values ('alice', 35, 'b')";
        attempt(&mut second, claim).await.unwrap();
        let balance = "select balance from accounts where account_id = 'alice'";
        number(&mut second, balance).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    attempt(&mut first, "commit").await.unwrap();
    assert_eq!(waiting.await.unwrap(), 7);
}

/// The negative control of the test above, and why it says `immediate`.
#[tokio::test]
async fn deferred_transaction_that_has_read_can_not_claim_after_another_write() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let wal = settings_of(&file).journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let mut first = wal.connect().await.unwrap();
    sqlite::install(&mut first).await.unwrap();
    attempt(&mut first, ACCOUNTS).await.unwrap();
    let mut second = wal.connect().await.unwrap();
    attempt(&mut second, "begin").await.unwrap();
    let balance = "select balance from accounts where account_id = 'alice'";
    assert_eq!(number(&mut second, balance).await, 100);
    let write = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW} commit");
    attempt(&mut first, &write).await.unwrap();
    assert_eq!(number(&mut second, balance).await, 100, "it is 7 by now");
    let claim = "insert into fence_claim values ('alice', 35, 'b')";
    assert_eq!(attempt(&mut second, claim).await.unwrap_err(), "database");
}

#[tokio::test]
async fn malformed_offers_are_refused() {
    let mut database = accounts().await;
    let long = format!("'{}'", "m".repeat(129));
    for (resource, token, holder) in [
        ("'bob'", "0", "'a'"),
        ("'bob'", "0", "''"),
        ("'bob'", "-1", "'a'"),
        ("'bob'", "34.0", "'a'"),
        ("'bob'", "'34'", "'a'"),
        ("'bob'", "x'22'", "'a'"),
        ("'bob'", "null", "'a'"),
        ("'bob'", "1000000000000000", "'a'"),
        ("'bob'", "9223372036854775807", "'a'"),
        ("'bob'", "34", "null"),
        ("'bob'", "34", "'a b'"),
        ("'bob'", "34", "'ż'"),
        ("'bob'", "34", "'a' || char(10)"),
        ("'bob'", "34", "'a' || char(0)"),
        ("'bob'", "34", "'a' || char(0) || 'ż'"),
        ("'bob'", "34", "x'61'"),
        ("'bob'", "34", "7"),
        ("'bob'", "34", long.as_str()),
        ("''", "34", "'a'"),
        ("null", "34", "'a'"),
        ("7", "34", "'a'"),
        ("x'61'", "34", "'a'"),
        ("printf('%.513c', 'x')", "34", "'a'"),
        ("printf('%.257c', 'x') || printf('%.128c', 'ż')", "34", "'a'"),
    ] {
        let claim = format!("insert into fence_claim values ({resource}, {token}, {holder})");
        let refused = attempt(&mut database, &claim).await;
        assert_eq!(refused, Err(MALFORMED.to_owned()), "{claim}");
    }
    // A row without a resource.
    let nothing = format!("{PRESENT}insert into accounts values (null, 7)");
    let refused = attempt_and_roll_back(&mut database, &nothing).await;
    assert_eq!(refused.unwrap_err(), MALFORMED);
    assert_eq!(number(&mut database, "select count(*) from fence").await, 1);
}

#[tokio::test]
async fn installing_again_keeps_fences_and_protection() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let sql = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite/fence/0001_fence.sql");
    let apply = || {
        let mut command = Command::new("sqlite3");
        command.arg("-bail").arg(&file).stdin(std::fs::File::open(sql).unwrap());
        let output = command.output().expect("sqlite3 is installed; the package sqlite3 has it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    apply();
    apply();
    let mut database = settings_of(&file).connect().await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    apply();
    let stale = presented(33, "a");
    let refused = attempt_and_roll_back(&mut database, &format!("{stale}{UPDATE}")).await;
    assert_eq!(refused.unwrap_err(), STALE);
    let valid = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW} commit");
    attempt(&mut database, &valid).await.unwrap();
}
