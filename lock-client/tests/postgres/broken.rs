//! Broken variants of the SQL, each of which a check finds.

use std::time::Duration;

use anyhow::ensure;
use fence::Holder;
use lock_client::{Locks, backend::Backend, postgres::Postgres};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::sleep;

use super::{locked, locked_with};
use crate::{
    lock_service::ttl,
    names::name,
    sql::{self, granted},
};

/// Where `acquire` looks at the queue, before and after it locks the row.
const VISIBLE_QUEUE: &str = "acquire.holder) = acquire.holder";
const LATEST_QUEUE: &str =
    "((fenced_lock.first_waiter(acquire.name)).holder = acquire.holder) is not false";

/// A PostgreSQL whose locks have something else in place of a part of their SQL.
async fn broken(part: &str, instead: &str) -> (testbed::Postgres, Postgres) {
    let change = |sql: &str| {
        assert!(sql.contains(part), "there is no {part:?}");
        sql.replace(part, instead)
    };
    locked_with(&[], change).await
}

#[tokio::test]
async fn takeover_that_counts_nothing_is_found() {
    let (_server, client) = broken("set token = l.token + 1,", "set token = l.token,").await;
    sql::tokens_do_not_grow(&client).await;
}

#[tokio::test]
async fn takeover_of_a_held_lock_is_found() {
    let change = |sql: &str| {
        sql.replace("held.name = acquire.name", "false")
            .replace("where (l.holder is null or l.expires_at <= clock_timestamp())", "where true")
    };
    let (_server, client) = locked_with(&[], change).await;
    sql::one_of_many_holds(&client).await.unwrap_err();
}

#[tokio::test]
async fn renewal_without_a_look_at_the_clock_is_found() {
    let (_server, client) = broken(
        "l.granted = renew.granted\n        and l.expires_at > clock_timestamp()",
        "l.granted = renew.granted",
    )
    .await;
    sql::expired_lock_is_not_renewed(&client).await.unwrap_err();
}

#[tokio::test]
async fn renewal_without_a_look_at_the_grant_is_found() {
    let (_server, client) = broken(" and l.granted = renew.granted", "").await;
    sql::expired_lock_is_not_renewed(&client).await.unwrap_err();
}

#[tokio::test]
async fn reissue_below_the_present_token_is_found() {
    let (_server, client) =
        broken("greatest(l.token, reissue.above) + 1", "reissue.above + 1").await;
    sql::reissued_token_is_above_both(&client).await.unwrap_err();
}

#[tokio::test]
async fn release_without_a_look_at_the_holder_is_found() {
    let (_server, client) = broken(" and l.holder = release.holder", "").await;
    sql::lock_of_another_is_not_released(&client).await.unwrap_err();
}

#[tokio::test]
async fn release_that_notifies_nobody_is_found() {
    let (server, _) = broken("perform fenced_lock.notify(release.name);", "").await;
    let open = || Ok(Locks::new(Postgres::open(&server.url())?));
    sql::release_wakes_the_waiter(open, 200, Duration::from_secs(3)).await.unwrap_err();
}

#[tokio::test]
async fn queue_that_is_ignored_is_found() {
    let change = |sql: &str| {
        for look in [VISIBLE_QUEUE, LATEST_QUEUE] {
            assert!(sql.contains(look));
        }
        sql.replace(VISIBLE_QUEUE, "acquire.holder) is not null").replace(LATEST_QUEUE, "true")
    };
    let (_server, client) = locked_with(&[], change).await;
    sql::queue_is_not_overtaken(&client).await.unwrap_err();
}

#[tokio::test]
async fn queue_that_keeps_the_dead_is_found() {
    let (_server, client) =
        broken("acquire.patience_ms * interval '1 ms')", "interval '1 h')").await;
    sql::dead_head_is_skipped(&client).await.unwrap_err();
}

#[tokio::test]
async fn names_compared_by_a_language_are_found() {
    let change = |sql: &str| {
        let collation = "create collation fenced_lock.loose (
            provider = icu, locale = 'und-u-ks-level1', deterministic = false);
            create table if not exists";
        let sql = sql.replacen("create table if not exists", collation, 1);
        sql.replace(
            "name text collate \"C\" not null",
            "name text collate fenced_lock.loose not null",
        )
    };
    let (_server, client) = locked_with(&[], change).await;
    sql::names_differ_byte_by_byte(&client).await.unwrap_err();
}

/// A transaction calls `acquire` some time after it began. The lock is held for the full ttl all the
/// same.
async fn ttl_counts_from_the_call(server: &testbed::Postgres) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&server.url()).await?;
    let mut transaction = connection.begin().await?;
    transaction.execute("select 1").await?;
    sleep(Duration::from_millis(100)).await;
    let now = "select clock_timestamp()::text";
    let before: String = sqlx::query_scalar(now).fetch_one(&mut *transaction).await?;
    let acquire = "select fenced_lock.acquire('r', 'me', 1000, null, 1700000000000, '')";
    transaction.execute(acquire).await?;
    transaction.commit().await?;
    let lasts = "select expires_at >= $1::timestamptz + interval '1 s' from fenced_lock.lock";
    let lasts: bool = sqlx::query_scalar(lasts).bind(&before).fetch_one(&mut connection).await?;
    ensure!(lasts, "the ttl does not count from the call");
    Ok(())
}

#[tokio::test]
async fn ttl_counts_from_the_call_and_not_from_the_transaction() {
    let (server, _) = locked().await;
    ttl_counts_from_the_call(&server).await.unwrap();
    let (server, _) = broken("clock_timestamp()", "now()").await;
    let error = ttl_counts_from_the_call(&server).await.unwrap_err();
    assert!(error.to_string().contains("does not count from the call"), "{error}");
}

/// A commit that is not on the disk is lost in a crash.
#[tokio::test]
async fn grant_that_is_not_durable_is_found() {
    let settings = ["synchronous_commit=off", "wal_writer_delay=10s"];
    for (durable, value) in [(true, "on"), (false, "off")] {
        let change = |sql: &str| {
            let part = "set_config('synchronous_commit', 'on', true)";
            assert!(sql.contains(part));
            sql.replace(part, &format!("set_config('synchronous_commit', '{value}', true)"))
        };
        let (mut server, client) = locked_with(&settings, change).await;
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        connection.execute("checkpoint").await.unwrap();
        let holder = Holder::random();
        granted(&client, "r", &holder, 600_000).await.unwrap();
        server.crash().await.unwrap();
        server.start_again().await.unwrap();
        let locks = Locks::new(client);
        let held = locks.status(&name("r")).await.unwrap().held;
        assert_eq!(held.is_some(), durable, "{held:?}");
    }
}

/// A try waits for the row of a free lock. Meanwhile another holder becomes the first in the queue.
/// Returns whether the try overtakes it.
async fn try_overtakes_the_queue(change: impl Fn(&str) -> String) -> bool {
    let (server, _) = locked_with(&[], change).await;
    let connect = async || PgConnection::connect(&server.url()).await.unwrap();
    let (mut other, mut trying, mut observer) = (connect().await, connect().await, connect().await);
    observer.execute("insert into fenced_lock.lock (name, token) values ('r', 1)").await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    transaction.execute("select from fenced_lock.lock for update").await.unwrap();
    let trying = tokio::spawn(async move {
        let acquire =
            "select token from fenced_lock.acquire('r', 'me', 1000, null, 1700000000000, '')";
        sqlx::query_scalar::<_, Option<i64>>(acquire).fetch_one(&mut trying).await.unwrap()
    });
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut observer).await.unwrap() == 0 {}
    let first = "insert into fenced_lock.queue (name, holder, alive_until)
        values ('r', 'first', now() + interval '1 h')";
    observer.execute(first).await.unwrap();
    transaction.rollback().await.unwrap();
    trying.await.unwrap().is_some()
}

#[tokio::test]
async fn try_that_waited_for_the_row_does_not_overtake_the_queue() {
    assert!(!try_overtakes_the_queue(str::to_owned).await);
    assert!(try_overtakes_the_queue(|sql| sql.replace(LATEST_QUEUE, "true")).await);
}

/// Clients in other languages get an error that names the argument.
#[tokio::test]
async fn wrong_arguments_are_named() {
    let (server, _) = locked().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    for (arguments, part) in [
        ("null, 'me', 1000, null, 1700000000000, ''", "name must"),
        ("'', 'me', 1000, null, 1700000000000, ''", "name must"),
        ("repeat('ä', 257), 'me', 1000, null, 1700000000000, ''", "name must"),
        ("'r', null, 1000, null, 1700000000000, ''", "holder must"),
        ("'r', '', 1000, null, 1700000000000, ''", "holder must"),
        ("'r', E'me\n', 1000, null, 1700000000000, ''", "holder must"),
        ("'r', 'me', null, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', 0, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', 9223372036854775807, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', 1000, 999, 1700000000000, ''", "patience_ms must"),
        ("'r', 'me', 1000, null, null, ''", "since_ms must"),
        ("'r', 'me', 1000, null, -1, ''", "since_ms must"),
        ("'r', 'me', 1000, null, 0, ''", "since_ms must"),
        // Seconds, and microseconds.
        ("'r', 'me', 1000, null, 1700000000, ''", "since_ms must"),
        ("'r', 'me', 1000, null, 1700000000000000, ''", "since_ms must"),
        // The year 2096.
        ("'r', 'me', 1000, null, 4000000000000, ''", "since_ms must"),
        ("'r', 'me', 1000, null, 1700000000000, null", "label must"),
    ] {
        let acquire = AssertSqlSafe(format!("select fenced_lock.acquire({arguments})"));
        let error = connection.execute(acquire).await.unwrap_err();
        let error = error.into_database_error().unwrap();
        assert_eq!(error.code().unwrap(), "22023", "{arguments}: {error}");
        assert!(error.message().contains(part), "{arguments}: {error}");
    }
}

/// The row of a lock that is held elsewhere is not locked by those that try, so renewals go on.
#[tokio::test]
async fn waiters_do_not_lock_the_row() {
    let (server, client) = locked().await;
    let holder = Holder::random();
    let (token, ownership) = granted(&client, "r", &holder, 600_000).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let acquire = "select fenced_lock.acquire('r', 'other', 1000, 3000, 1700000000000, '')";
    transaction.execute(acquire).await.unwrap();
    assert_eq!(client.renew(&name("r"), &ownership, ttl(600_000)).await.unwrap(), Some(token));
    assert!(client.release(&name("r"), &holder, Some(token)).await.unwrap());
}

/// What a function finds first on a caller's search_path, unless it names or finds all in `pg_catalog`.
const TRAPS: &str = "
    create schema trap;
    create function trap.is_later(timestamptz, timestamptz) returns boolean language plpgsql
    as 'begin raise exception $$trapped$$; end';
    create operator trap.> (
        leftarg = timestamptz, rightarg = timestamptz, function = trap.is_later);
    create function trap.clock_timestamp() returns timestamptz language plpgsql
    as 'begin raise exception $$trapped$$; end';
    create function trap.is_text(value pg_catalog.text) returns boolean language plpgsql
    as 'begin raise exception $$trapped$$; end';
    create domain trap.text as pg_catalog.text check (trap.is_text(value));
    set search_path = trap, pg_catalog;";

/// Acquires and releases, and calls the functions that this needs, with a waiter in the queue.
async fn call_among_traps(change: impl Fn(&str) -> String) -> Result<(), sqlx::Error> {
    let (server, _) = locked_with(&[], change).await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute(TRAPS).await.unwrap();
    for call in [
        "acquire('r', 'first', 60000, 3000, 1700000000000, '')",
        "acquire('r', 'second', 60000, 3000, 1700000000000, '')",
        "make_durable()",
        "first_waiter('r')",
        "notify('r')",
        "millis_until(pg_catalog.now())",
        "release('r', 'first')",
        "release('r', 'second')",
    ] {
        let call = AssertSqlSafe(format!("select fenced_lock.{call}"));
        connection.execute(call).await?;
    }
    Ok(())
}

#[tokio::test]
async fn search_path_of_the_caller_replaces_nothing() {
    call_among_traps(str::to_owned).await.unwrap();
    for (part, instead) in [
        ("operator(pg_catalog.>)", ">"),
        ("pg_catalog.clock_timestamp()", "clock_timestamp()"),
        (
            "begin\n    perform pg_catalog.pg_notify(",
            "declare payload text = name; begin perform pg_notify(",
        ),
    ] {
        let broken = |sql: &str| {
            assert!(sql.contains(part));
            sql.replace(part, instead)
        };
        let error = call_among_traps(broken).await.unwrap_err();
        assert!(error.to_string().contains("trapped"), "{part}: {error}");
    }
}
