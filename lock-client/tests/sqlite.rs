//! Locks in SQLite.

use std::time::Duration;

use fence::{Holder, Token};
use lock_client::{
    Locks, Order,
    backend::{Backend, BackendError, Ownership},
    sqlite::{Sqlite, install},
};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;
use testbed::wait::until_async;
use tokio::time::timeout;

use crate::{
    lock_service::{ttl, with_causes},
    names::name,
    sql::{self, granted},
};

/// How long a client may wait that gives each answer 5 s: four times as long.
const IN_TIME: Duration = Duration::from_secs(20);

pub(crate) fn url(folder: &TempDir) -> String {
    format!("sqlite://{}/locks.db", folder.path().display())
}

pub(crate) async fn connect(folder: &TempDir) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.path().join("locks.db"));
    SqliteConnection::connect_with(&options.create_if_missing(true)).await.unwrap()
}

/// A file with locks, and a client of it.
pub(crate) async fn locked() -> (TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let mut connection = connect(&folder).await;
    install(&mut connection).await.unwrap();
    install(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let client = Sqlite::open(&url(&folder)).unwrap();
    (folder, client.answer_within(Duration::from_secs(5)))
}

/// The same with a trigger that breaks it.
async fn broken(trigger: &str) -> (TempDir, Sqlite) {
    let (folder, client) = locked().await;
    let trigger = format!("create trigger broken {trigger}");
    connect(&folder).await.execute(AssertSqlSafe(trigger)).await.unwrap();
    (folder, client)
}

#[tokio::test]
async fn token_grows_over_release_and_expiry() {
    let (folder, client) = locked().await;
    sql::tokens_grow(&client).await.unwrap();
    // A new client continues.
    sql::tokens_grow(&Sqlite::open(&url(&folder)).unwrap()).await.unwrap();
    let same =
        "after update on fenced_lock when old.holder is null and new.holder is not null begin
        update fenced_lock set token = old.token, granted = old.token where name = new.name; end";
    let (_folder, client) = broken(same).await;
    sql::tokens_do_not_grow(&client).await;
}

#[tokio::test]
async fn token_grows_over_the_loss_of_the_table() {
    let (folder, client) = locked().await;
    let first = granted(&client, "r", &Holder::random(), 600_000).await.unwrap().0;
    connect(&folder).await.execute("delete from fenced_lock").await.unwrap();
    let second = granted(&client, "r", &Holder::random(), 600_000).await.unwrap().0;
    assert!(second > first);
}

#[tokio::test]
async fn holder_that_tries_again_has_the_same_grant_and_the_full_ttl() {
    let (_folder, client) = locked().await;
    sql::same_holder_has_its_grant_again(&client).await.unwrap();
}

#[tokio::test]
async fn one_of_twenty_tasks_holds_the_lock() {
    let (_folder, client) = locked().await;
    sql::one_of_many_holds(&client).await.unwrap();
    // All locks expire at once.
    let expired = "after update on fenced_lock when new.holder is not null begin
        update fenced_lock set expires_at_ms = expires_at_ms - 59999 where name = new.name; end";
    let (_folder, client) = broken(expired).await;
    sql::one_of_many_holds(&client).await.unwrap_err();
}

#[tokio::test]
async fn expired_lock_is_not_renewed() {
    let (_folder, client) = locked().await;
    sql::expired_lock_is_not_renewed(&client).await.unwrap();
}

#[tokio::test]
async fn reissued_token_is_above_both() {
    let (_folder, client) = locked().await;
    sql::reissued_token_is_above_both(&client).await.unwrap();
}

#[tokio::test]
async fn lock_of_another_is_not_released() {
    let (_folder, client) = locked().await;
    sql::lock_of_another_is_not_released(&client).await.unwrap();
}

#[tokio::test]
async fn unreadable_answer_leaves_the_outcome_unknown() {
    let (folder, client) = locked().await;
    let set_token_to_0 = async || {
        connect(&folder).await.execute("update fenced_lock set token = 0").await.unwrap();
    };
    sql::unreadable_answer_leaves_the_outcome_unknown(&client, set_token_to_0).await.unwrap();
}

#[tokio::test]
async fn waiters_are_notified_by_their_client_or_poll() {
    let (folder, client) = locked().await;
    sql::release_notifies_own_waiters(&client, &client).await.unwrap();
    let other = Sqlite::open(&url(&folder)).unwrap();
    sql::release_notifies_own_waiters(&client, &other).await.unwrap_err();
    let open = || Ok(Locks::new(Sqlite::open(&url(&folder))?));
    sql::release_wakes_the_waiter(open, 30, Duration::from_secs(3)).await.unwrap();
}

#[tokio::test]
async fn fair_waiters_keep_their_order() {
    let (_folder, client) = locked().await;
    sql::fair_waiters_keep_their_order(&client).await.unwrap();
    sql::queue_is_not_overtaken(&client).await.unwrap();
    let forgetful = "after insert on fenced_lock_queue begin delete from fenced_lock_queue; end";
    let (_folder, client) = broken(forgetful).await;
    sql::queue_is_not_overtaken(&client).await.unwrap_err();
}

#[tokio::test]
async fn dead_head_is_skipped() {
    let (_folder, client) = locked().await;
    sql::dead_head_is_skipped(&client).await.unwrap();
    let immortal = "after insert on fenced_lock_queue begin
        update fenced_lock_queue set alive_until_ms = alive_until_ms + 3600000
        where place = new.place; end";
    let (_folder, client) = broken(immortal).await;
    sql::dead_head_is_skipped(&client).await.unwrap_err();
}

#[tokio::test]
async fn names_differ_byte_by_byte() {
    let (_folder, client) = locked().await;
    sql::names_differ_byte_by_byte(&client).await.unwrap();
}

#[tokio::test]
async fn names_of_no_lock_are_rejected() {
    let (folder, _) = locked().await;
    let mut connection = connect(&folder).await;
    let acquire = async |name: &str| {
        let acquire = "insert into fenced_lock (name, token) values (?, 1)";
        sqlx::query(acquire).bind(name).execute(&mut connection).await.map(|_| ())
    };
    sql::names_of_no_lock_are_rejected(acquire).await.unwrap();
}

/// A missing row starts at this time.
#[tokio::test]
async fn times_of_a_grant_that_are_no_unix_time_are_rejected() {
    let (folder, _) = locked().await;
    let mut connection = connect(&folder).await;
    let mut insert = async |since_ms: &str| {
        let insert = format!(
            "insert into fenced_lock (name, token, granted, holder, expires_at_ms, since_ms)
            values ('r', {since_ms} + 1, {since_ms} + 1, 'me', 1, {since_ms})"
        );
        connection.execute(AssertSqlSafe(insert)).await.map(drop).map_err(|e| e.to_string())
    };
    for since_ms in ["-1", "0", "1700000000", "4000000000000", "1700000000000000"] {
        let error = insert(since_ms).await.unwrap_err();
        assert!(error.contains("since_ms must be the Unix time"), "{since_ms}: {error}");
    }
    insert("1700000000000").await.unwrap();
}

#[tokio::test]
async fn missing_table_is_rejected_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let client = Sqlite::open(&url(&folder)).unwrap();
    let error = client.status(&name("r")).await.unwrap_err();
    assert!(matches!(error, BackendError::Rejected(_)), "there is no file: {error:?}");
    connect(&folder).await.close().await.unwrap();
    for _ in 0..2 {
        let error = client.release(&name("r"), &Holder::random(), None).await.unwrap_err();
        assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
        assert!(with_causes(&error).contains("apply migrations/sqlite/lock"), "{error:?}");
    }
}

#[tokio::test]
async fn locked_file_is_unavailable_in_time() {
    let (folder, client) = locked().await;
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let unconnected = Sqlite::open(&url(&folder)).unwrap();
    let mut connection = connect(&folder).await;
    let other = connection.begin_with("begin exclusive").await.unwrap();
    for client in [client, unconnected.clone()] {
        let client = client.answer_within(Duration::from_secs(5));
        let (lock, holder) = (name("r"), Holder::random());
        let blocked = client.try_acquire(&lock, &holder, ttl(10), Order::Fair);
        let error = timeout(IN_TIME, blocked).await.expect("it ends").unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
        assert!(with_causes(&error).contains("keeps the file locked"), "{error:?}");
    }
    other.rollback().await.unwrap();
    granted(&unconnected, "another", &Holder::random(), 600_000).await.unwrap();
}

/// Without FULL, a commit in a write-ahead log waits for no sync.
#[tokio::test]
async fn grants_are_synced_to_a_write_ahead_log() {
    let (folder, client) = locked().await;
    let mut connection = connect(&folder).await;
    // It runs on the connection that writes the lock.
    let settings = "create table settings (synchronous text, journal_mode text);
        create trigger settings after insert on fenced_lock begin
            insert into settings
            select synchronous, journal_mode from pragma_synchronous, pragma_journal_mode;
        end";
    connection.execute(settings).await.unwrap();
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    // The control.
    let unsynced =
        "pragma synchronous = normal; insert into fenced_lock (name, token) values ('n', 1)";
    connection.execute(unsynced).await.unwrap();
    let seen = "select synchronous, journal_mode from settings order by rowid";
    let seen: Vec<(String, String)> =
        sqlx::query_as(seen).fetch_all(&mut connection).await.unwrap();
    let row = |synchronous: &str| (synchronous.to_owned(), "wal".to_owned());
    let [normal, full] = ["1", "2"].map(row);
    assert_eq!(seen, [full, normal]);
}

async fn install_fence(connection: &mut SqliteConnection) {
    for file in ["0001_fence", "0002_protect"] {
        let path = format!("{}/../migrations/sqlite/fence/{file}.sql", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        connection.execute(AssertSqlSafe(text)).await.unwrap();
    }
}

/// A lock expires, and nobody else acquires it. Returns why the owner's claim is rejected, if it is.
async fn claim_of_an_expired_owner(change: impl Fn(&str) -> String) -> Option<String> {
    let (folder, client) = locked().await;
    let mut connection = connect(&folder).await;
    install_fence(&mut connection).await;
    let trigger = include_str!("../migrations/sqlite/0001_lock.sql");
    let (_, trigger) = trigger.split_once("create trigger fenced_lock_claim_while_held").unwrap();
    let (trigger, _) = trigger.split_once("\n\nrelease").unwrap();
    let changed = change(&format!("create trigger fenced_lock_claim_while_held{trigger}"));
    let changed = format!("drop trigger fenced_lock_claim_while_held; {changed}");
    connection.execute(AssertSqlSafe(changed)).await.unwrap();
    let (token, owner) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut claim = async || {
        sqlx::query("insert into fenced_lock_claim values ('account', 'r', ?, ?)")
            .bind(token.as_i64())
            .bind(owner.holder.as_str())
            .execute(&mut connection)
            .await
    };
    claim().await.unwrap();
    assert_eq!(client.renew(&name("r"), &owner, ttl(500)).await.unwrap(), Some(token));
    let is_free = async || Ok(client.status(&name("r")).await?.held.is_none());
    until_async(IN_TIME, is_free).await.unwrap();
    claim().await.err().map(|error| error.to_string())
}

#[tokio::test]
async fn expired_owner_does_not_claim() {
    let rejection = claim_of_an_expired_owner(str::to_owned).await.expect("it is rejected");
    assert!(rejection.contains("ZL001"), "{rejection}");
    let without_the_clock = |trigger: &str| {
        let (before, expiry) = trigger.split_once("\n            and expires_at_ms > ").unwrap();
        assert!(expiry.starts_with("cast((julianday('now')"));
        format!("{before});\nend;")
    };
    let rejection = claim_of_an_expired_owner(without_the_clock).await;
    assert_eq!(rejection, None, "the control");
}

#[tokio::test]
async fn only_the_present_owner_claims() {
    let (folder, client) = locked().await;
    let mut connection = connect(&folder).await;
    install_fence(&mut connection).await;
    let (_, first) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut claim = async |owner: &Ownership| {
        sqlx::query("insert into fenced_lock_claim values ('account', 'r', ?, ?)")
            .bind(owner.grant.as_i64())
            .bind(owner.holder.as_str())
            .execute(&mut connection)
            .await
    };
    claim(&first).await.unwrap();
    client.release(&name("r"), &first.holder, None).await.unwrap();
    let lost = claim(&first).await.unwrap_err().to_string();
    assert!(lost.contains("ZL001"), "{lost}");
    let (token, second) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    // A resource is written with the token that it was claimed with, also after a reissue.
    let reissued = client.reissue(&name("r"), &second, token).await.unwrap().unwrap();
    claim(&second).await.unwrap();
    let third = Ownership { grant: reissued, ..second.clone() };
    claim(&third).await.unwrap();
    assert!(claim(&second).await.unwrap_err().to_string().contains("ZF001"));
    let above = Token::new(reissued.as_u64() + 1).unwrap();
    let above = claim(&Ownership { grant: above, ..second }).await.unwrap_err().to_string();
    assert!(above.contains("ZL001"), "{above}");
    let stale = claim(&first).await.unwrap_err().to_string();
    assert!(stale.contains("ZF001"), "{stale}");
}

async fn apply(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let locks = include_str!("../migrations/sqlite/0001_lock.sql");
    connection.execute(locks).await.map(drop)
}

/// Also while a client uses the locks, and after a part of them was damaged.
#[tokio::test]
async fn file_may_be_applied_again() {
    let (folder, client) = locked().await;
    let (token, ownership) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut connection = connect(&folder).await;
    connection
        .execute("drop trigger fenced_lock_is_valid; drop view fenced_lock_claim")
        .await
        .unwrap();
    for _ in 0..2 {
        apply(&mut connection).await.unwrap();
        assert_eq!(client.renew(&name("r"), &ownership, ttl(600_000)).await.unwrap(), Some(token));
    }
    let invalid = "insert into fenced_lock (name, token) values ('a//b', 1)";
    connection.execute(invalid).await.expect_err("it is repaired");
    let claims = "select count(*) from sqlite_schema where name = 'fenced_lock_claim_while_held'";
    let claims: i64 = sqlx::query_scalar(claims).fetch_one(&mut connection).await.unwrap();
    assert_eq!(claims, 1);
}

/// The statements are those of the error.
#[tokio::test]
async fn locks_of_an_earlier_build_are_rejected_and_their_tokens_carried_over() {
    let (folder, client) = locked().await;
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut connection = connect(&folder).await;
    let earlier = "drop trigger fenced_lock_claim_while_held; drop trigger fenced_lock_is_valid;
        create trigger fenced_lock_claims instead of insert on fenced_lock_claim begin select 1; end;
        update fenced_lock set token = 5000000000000";
    connection.execute(earlier).await.unwrap();
    let schema = "select group_concat(sql) from sqlite_schema";
    let before: String = sqlx::query_scalar(schema).fetch_one(&mut connection).await.unwrap();
    let error = install(&mut connection).await.unwrap_err().to_string();
    assert!(error.contains("locks of an earlier build"), "{error}");
    let after: String = sqlx::query_scalar(schema).fetch_one(&mut connection).await.unwrap();
    assert_eq!(before, after);

    let (_, steps) = error.split_once("runs: ").unwrap();
    let (steps, last) = steps.split_once("apply this file;").unwrap();
    connection.execute(AssertSqlSafe(steps.to_owned())).await.unwrap();
    install(&mut connection).await.unwrap();
    connection.execute(AssertSqlSafe(last.to_owned())).await.unwrap();
    let (token, _) = granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    assert_eq!(token.as_u64(), 5_000_000_000_001);
}

/// What migrations/README.md says about removing the fence.
#[tokio::test]
async fn removal_of_the_fence_keeps_the_locks() {
    let (folder, _) = locked().await;
    let mut connection = connect(&folder).await;
    let readme = include_str!("../../migrations/README.md");
    let (_, removal) = readme.split_once("select format('drop %s if exists").unwrap();
    let removal = removal.split_once("```").unwrap().0;
    let removal = format!("select format('drop %s if exists{removal}");
    let dropped: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(removal)).fetch_all(&mut connection).await.unwrap();
    assert!(dropped.is_empty(), "{dropped:?}");
}

#[test]
fn url_of_something_else_is_rejected() {
    for url in ["postgres://localhost", "sqlite::memory:", "sqlite://x?mode=memory"] {
        Sqlite::open(url).unwrap_err();
    }
    let text = Sqlite::open("sqlite:x?tls-ca=y").unwrap_err().to_string();
    assert!(text.contains("`tls-ca` is no setting here; the settings are mode, cache"), "{text}");
    Sqlite::open("sqlite:x?mode=rw&psow=1").unwrap();
}
