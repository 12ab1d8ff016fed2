//! Locks in PostgreSQL.

mod broken;
mod claims;
mod failures;
mod hosts;
mod installing;
mod notifications;
mod pgbouncer;
mod settings;
mod tls;

use std::{path::Path, time::Duration};

use fence::Holder;
use lock_client::{
    Locks,
    backend::{Backend, BackendError},
    postgres::Postgres,
};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::{lock_service::with_causes, names::name, sql};

/// Makes a client with patience for a busy machine.
pub(crate) fn patient(url: &str) -> Postgres {
    Postgres::open(url).unwrap().answer_within(Duration::from_secs(5))
}

/// A PostgreSQL with locks, and a client of it.
pub(crate) async fn locked() -> (testbed::Postgres, Postgres) {
    locked_with(&[], str::to_owned).await
}

/// The same with settings, and with changed SQL.
pub(crate) async fn locked_with(
    settings: &[&str],
    change: impl Fn(&str) -> String,
) -> (testbed::Postgres, Postgres) {
    let server = testbed::Postgres::start_with(settings).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute(AssertSqlSafe(change(&migrations("lock")))).await.unwrap();
    connection.close().await.unwrap();
    let client = patient(&server.url());
    (server, client)
}

/// All files of a folder of migrations, one after the other.
fn migrations(folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/postgres").join(folder);
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[tokio::test]
async fn token_grows_over_release_and_expiry() {
    let (_server, client) = locked().await;
    sql::tokens_grow(&client).await.unwrap();
}

#[tokio::test]
async fn token_grows_over_a_crash_though_commits_are_asynchronous() {
    let (mut server, client) = locked_with(&["synchronous_commit=off"], str::to_owned).await;
    for _ in 0..3 {
        let holder = Holder::random();
        let (token, _) = sql::granted(&client, "r", &holder, 600_000).await.unwrap();
        server.crash().await.unwrap();
        server.start_again().await.unwrap();
        let (again, ownership) = sql::granted(&client, "r", &holder, 600_000).await.unwrap();
        assert_eq!(token, again, "the lock is still held");
        let locks = Locks::new(client.clone());
        let held = locks.status(&name("r")).await.unwrap().held.unwrap();
        assert_eq!((held.ownership, held.token), (ownership, token));
        sql::released(&client, "r", &holder, token).await.unwrap();
        let next = sql::granted(&client, "r", &Holder::random(), 600_000).await.unwrap().1;
        assert!(next.grant > token);
        sql::released(&client, "r", &next.holder, next.grant).await.unwrap();
    }
}

/// After the loss of the table, tokens continue above all that were issued.
#[tokio::test]
async fn token_grows_over_the_loss_of_the_table() {
    let (server, client) = locked().await;
    let first = sql::granted(&client, "r", &Holder::random(), 600_000).await.unwrap().0;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute("truncate fenced_lock.lock").await.unwrap();
    let second = sql::granted(&client, "r", &Holder::random(), 600_000).await.unwrap().0;
    assert!(second > first);
}

#[tokio::test]
async fn holder_that_tries_again_has_the_same_grant_and_the_full_ttl() {
    let (_server, client) = locked().await;
    sql::same_holder_has_its_grant_again(&client).await.unwrap();
}

#[tokio::test]
async fn one_of_twenty_tasks_holds_the_lock() {
    let (_server, client) = locked().await;
    sql::one_of_many_holds(&client).await.unwrap();
}

#[tokio::test]
async fn expired_lock_is_not_renewed() {
    let (_server, client) = locked().await;
    sql::expired_lock_is_not_renewed(&client).await.unwrap();
}

#[tokio::test]
async fn reissued_token_is_above_both() {
    let (_server, client) = locked().await;
    sql::reissued_token_is_above_both(&client).await.unwrap();
}

#[tokio::test]
async fn lock_of_another_is_not_released() {
    let (_server, client) = locked().await;
    sql::lock_of_another_is_not_released(&client).await.unwrap();
}

#[tokio::test]
async fn unreadable_answer_leaves_the_outcome_unknown() {
    let (server, client) = locked().await;
    let set_token_to_0 = async || {
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        connection.execute("update fenced_lock.lock set token = 0").await.unwrap();
    };
    sql::unreadable_answer_leaves_the_outcome_unknown(&client, set_token_to_0).await.unwrap();
}

/// Its function was changed, and returns no boolean.
#[tokio::test]
async fn release_whose_answer_is_unreadable_may_have_been_carried_out() {
    let change = |sql: &str| {
        assert!(sql.contains("    return owned;"));
        sql.replace("    return owned;", "    return null;")
    };
    let (_server, client) = locked_with(&[], change).await;
    let holder = Holder::random();
    let (token, _) = sql::granted(&client, "r", &holder, 600_000).await.unwrap();
    let error = client.release(&name("r"), &holder, Some(token)).await.unwrap_err();
    assert!(with_causes(&error).contains("null"), "{error:?}");
    assert!(matches!(error, BackendError::Unavailable(_)), "it was carried out: {error:?}");
    assert_eq!(client.status(&name("r")).await.unwrap().held, None);
}

#[tokio::test]
async fn release_wakes_the_waiter() {
    let (server, _) = locked().await;
    let open = || Ok(Locks::new(Postgres::open(&server.url())?));
    // Long before it tries by itself.
    sql::release_wakes_the_waiter(open, 200, Duration::from_secs(3)).await.unwrap();
}

#[tokio::test]
async fn fair_waiters_keep_their_order() {
    let (_server, client) = locked().await;
    sql::fair_waiters_keep_their_order(&client).await.unwrap();
    sql::queue_is_not_overtaken(&client).await.unwrap();
}

#[tokio::test]
async fn dead_head_is_skipped() {
    let (_server, client) = locked().await;
    sql::dead_head_is_skipped(&client).await.unwrap();
}

#[tokio::test]
async fn names_differ_byte_by_byte() {
    let (_server, client) = locked().await;
    sql::names_differ_byte_by_byte(&client).await.unwrap();
}

#[tokio::test]
async fn names_of_no_lock_are_rejected() {
    let (server, _) = locked().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    // A user may have set it, and then a backslash in a literal means something else.
    connection.execute("set standard_conforming_strings = off").await.unwrap();
    let acquire = async |name: &str| {
        let acquire = "select fenced_lock.acquire($1, 'me', 1000, null, 1700000000000, '')";
        sqlx::query(acquire).bind(name).execute(&mut connection).await.map(|_| ())
    };
    sql::names_of_no_lock_are_rejected(acquire).await.unwrap();
}

/// The level of the role or the database does not matter.
#[tokio::test]
async fn serializable_transactions_by_default_change_nothing() {
    let settings = ["default_transaction_isolation=serializable"];
    let (_server, client) = locked_with(&settings, str::to_owned).await;
    sql::one_of_many_holds(&client).await.unwrap();
    sql::fair_waiters_keep_their_order(&client).await.unwrap();
}
