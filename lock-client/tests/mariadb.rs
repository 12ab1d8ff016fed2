//! Locks in MariaDB.

mod claims;
mod failures;
mod rejections;
mod settings;

use std::time::Duration;

use anyhow::{Context, ensure};
use fence::Holder;
use lock_client::{
    Locks,
    backend::Backend,
    mariadb::{MariaDb, install},
};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use testbed::wait::until_async;
use tokio::{join, time::sleep};

use crate::{
    names::name,
    sql::{self, granted},
};

const PROCEDURES: &str = include_str!("../migrations/mariadb/0001_lock.sql");

async fn connect(server: &testbed::MariaDb) -> MySqlConnection {
    MySqlConnection::connect(&server.url()).await.unwrap()
}

/// Makes a client with patience for a busy machine.
pub(crate) fn patient(url: &str) -> MariaDb {
    MariaDb::open(url).unwrap().answer_within(Duration::from_secs(5))
}

/// A MariaDB with locks, and a client of it.
pub(crate) async fn locked() -> (testbed::MariaDb, MariaDb) {
    let server = testbed::MariaDb::start().await.unwrap();
    let mut connection = connect(&server).await;
    install(&mut connection).await.unwrap();
    install(&mut connection).await.unwrap();
    let client = patient(&server.url());
    (server, client)
}

/// A MariaDB with locks and these options. Its user `named` has no special rights.
pub(crate) async fn locked_with(options: &[&str]) -> testbed::MariaDb {
    let server = testbed::MariaDb::start_with(options).await.unwrap();
    let mut connection = connect(&server).await;
    install(&mut connection).await.unwrap();
    for statement in ["create user named@localhost", "grant execute on test.* to named@localhost"] {
        connection.execute(statement).await.unwrap();
    }
    server
}

/// Waits until a transaction waits for a row that another one keeps locked.
async fn until_a_transaction_waits(server: &testbed::MariaDb) -> anyhow::Result<()> {
    let mut observer = connect(server).await;
    let waits = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'";
    loop {
        // MariaDB answers as it did before if it was asked less than 100 ms ago, even if that wait is
        // over.
        sleep(Duration::from_millis(150)).await;
        if sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut observer).await? > 0 {
            return Ok(());
        }
    }
}

/// Replaces a part of the procedures from now on.
async fn break_it(server: &testbed::MariaDb, part: &str, instead: &str) {
    assert!(PROCEDURES.contains(part), "there is no {part:?}");
    let broken = PROCEDURES.replace(part, instead);
    connect(server).await.execute(AssertSqlSafe(broken)).await.unwrap();
}

#[tokio::test]
async fn token_grows_over_release_and_expiry() {
    let (server, client) = locked().await;
    sql::tokens_grow(&client).await.unwrap();
    break_it(&server, "set present_token = present_token + 1;", "").await;
    sql::tokens_do_not_grow(&client).await;
}

#[tokio::test]
async fn token_grows_over_a_crash() {
    let (mut server, client) = locked().await;
    for _ in 0..2 {
        let holder = Holder::random();
        let (token, _) = granted(&client, "r", &holder, 600_000).await.unwrap();
        server.crash().unwrap();
        server.start_again().await.unwrap();
        let (again, _) = granted(&client, "r", &holder, 600_000).await.unwrap();
        assert_eq!(token, again, "the lock is still held");
        sql::released(&client, "r", &holder, token).await.unwrap();
        let holder = Holder::random();
        let next = granted(&client, "r", &holder, 600_000).await.unwrap().0;
        assert!(next > token);
        sql::released(&client, "r", &holder, next).await.unwrap();
    }
}

#[tokio::test]
async fn token_grows_over_the_loss_of_the_table() {
    let (server, client) = locked().await;
    let first = granted(&client, "r", &Holder::random(), 600_000).await.unwrap().0;
    connect(&server).await.execute("truncate fenced_lock").await.unwrap();
    let second = granted(&client, "r", &Holder::random(), 600_000).await.unwrap().0;
    assert!(second > first);
}

/// Somebody deletes the row of a free lock, and commits only when an attempt waits for the row. The
/// lock that is granted then has a row again.
async fn row_that_is_deleted_meanwhile_is_made_again(
    server: &testbed::MariaDb,
    client: &MariaDb,
) -> anyhow::Result<()> {
    let (token, ownership) = granted(client, "gone", &Holder::random(), 600_000).await?;
    client.release(&name("gone"), &ownership.holder, Some(token)).await?;
    let mut somebody = connect(server).await;
    somebody.execute("begin").await?;
    somebody.execute("delete from fenced_lock where name = 'gone'").await?;
    let holder = Holder::random();
    let committed = async {
        until_a_transaction_waits(server).await?;
        somebody.execute("commit").await?;
        anyhow::Ok(())
    };
    let (granted, committed) = join!(granted(client, "gone", &holder, 600_000), committed);
    committed?;
    let (next, _) = granted?;
    ensure!(next > token, "{next} follows {token}");
    let held = client.status(&name("gone")).await?.held;
    let held = held.context("the lock was granted, and has no row")?;
    ensure!(held.ownership.holder == holder, "another holds the lock");
    client.release(&name("gone"), &holder, Some(next)).await?;
    Ok(())
}

#[tokio::test]
async fn lock_is_granted_by_its_row_only() {
    let (server, client) = locked().await;
    // The attempt must still wait when the row is gone.
    let client = client.answer_within(Duration::from_secs(10));
    row_that_is_deleted_meanwhile_is_made_again(&server, &client).await.unwrap();
    break_it(&server, "set present_token = null;\n            select", "select").await;
    row_that_is_deleted_meanwhile_is_made_again(&server, &client).await.unwrap_err();
}

#[tokio::test]
async fn one_of_twenty_tasks_holds_the_lock() {
    let (server, client) = locked().await;
    sql::one_of_many_holds(&client).await.unwrap();
    break_it(&server, "coalesce(holder, '')", "''").await;
    sql::one_of_many_holds(&client).await.unwrap_err();
}

#[tokio::test]
async fn ownership_is_compared() {
    let (server, client) = locked().await;
    sql::same_holder_has_its_grant_again(&client).await.unwrap();
    sql::expired_lock_is_not_renewed(&client).await.unwrap();
    sql::reissued_token_is_above_both(&client).await.unwrap();
    sql::lock_of_another_is_not_released(&client).await.unwrap();
    break_it(&server, "if present_expiry > now_ms then", "if present_token is not null then").await;
    sql::expired_lock_is_not_renewed(&client).await.unwrap_err();
    break_it(&server, "greatest(token, in_above) + 1", "in_above + 1").await;
    sql::reissued_token_is_above_both(&client).await.unwrap_err();
}

#[tokio::test]
async fn fair_waiters_keep_their_order() {
    let (server, client) = locked().await;
    sql::fair_waiters_keep_their_order(&client).await.unwrap();
    sql::queue_is_not_overtaken(&client).await.unwrap();
    sql::dead_head_is_skipped(&client).await.unwrap();
    connect(&server).await.execute("truncate fenced_lock").await.unwrap();
    break_it(&server, "coalesce(first_holder, in_holder) = in_holder", "true").await;
    sql::queue_is_not_overtaken(&client).await.unwrap_err();
    break_it(&server, "now_ms + in_patience_ms)", "now_ms + 3600000)").await;
    sql::dead_head_is_skipped(&client).await.unwrap_err();
}

#[tokio::test]
async fn unreadable_answer_leaves_the_outcome_unknown() {
    let (server, client) = locked().await;
    let set_token_to_0 = async || {
        connect(&server).await.execute("update fenced_lock set token = 0").await.unwrap();
    };
    sql::unreadable_answer_leaves_the_outcome_unknown(&client, set_token_to_0).await.unwrap();
}

#[tokio::test]
async fn waiters_are_notified_by_their_client_or_poll() {
    let (server, client) = locked().await;
    sql::release_notifies_own_waiters(&client, &client).await.unwrap();
    let other = MariaDb::open(&server.url()).unwrap();
    sql::release_notifies_own_waiters(&client, &other).await.unwrap_err();
    let open = || Ok(Locks::new(MariaDb::open(&server.url())?));
    sql::release_wakes_the_waiter(open, 30, Duration::from_secs(3)).await.unwrap();
}

#[tokio::test]
async fn names_differ_byte_by_byte() {
    let (server, client) = locked().await;
    sql::names_differ_byte_by_byte(&client).await.unwrap();
    let mut connection = connect(&server).await;
    connection.execute("truncate fenced_lock").await.unwrap();
    let loose =
        "alter table fenced_lock modify name varchar(512) collate utf8mb4_general_ci not null";
    connection.execute(loose).await.unwrap();
    break_it(&server, "in_name varbinary(512)", "in_name varchar(512) character set utf8mb4").await;
    sql::names_differ_byte_by_byte(&client).await.unwrap_err();
}

#[tokio::test]
async fn names_of_no_lock_are_rejected() {
    let (server, _) = locked().await;
    let mut connection = connect(&server).await;
    let acquire = async |name: &str| {
        let acquire = "call fenced_lock_acquire(?, 'me', 1000, null, 1700000000000, '')";
        sqlx::query(acquire).bind(name).execute(&mut connection).await.map(|_| ())
    };
    sql::names_of_no_lock_are_rejected(acquire).await.unwrap();
    // Bytes that are no text.
    let acquire = "call fenced_lock_acquire(x'61ff', 'me', 1000, null, 1700000000000, '')";
    let error = connection.execute(sqlx::raw_sql(acquire)).await.unwrap_err().to_string();
    assert!(error.contains("Invalid utf8mb4") || error.contains("name must"), "{error}");
}

/// The clock is read once the row is locked.
#[tokio::test]
async fn lock_that_is_granted_after_a_wait_has_the_full_ttl() {
    let (server, client) = locked().await;
    let client = client.answer_within(Duration::from_secs(30));
    granted(&client, "r", &Holder::random(), 1_000).await.unwrap();
    let free = async || Ok(client.status(&name("r")).await?.held.is_none());
    until_async(Duration::from_secs(30), free).await.unwrap();
    let mut connection = connect(&server).await;
    let mut other = connection.begin().await.unwrap();
    other.execute("select * from fenced_lock for update").await.unwrap();
    let waiting = tokio::spawn(async move {
        granted(&client, "r", &Holder::random(), 60_000).await.unwrap();
    });
    until_a_transaction_waits(&server).await.unwrap();
    let now = "select cast(floor(unix_timestamp(sysdate(6)) * 1000) as signed)";
    let before = sqlx::query_scalar::<_, i64>(now).fetch_one(&mut *other).await.unwrap();
    other.rollback().await.unwrap();
    waiting.await.unwrap();
    let expiry = "select expires_at_ms from fenced_lock where name = 'r'";
    let expiry = sqlx::query_scalar::<_, i64>(expiry).fetch_one(&mut connection).await.unwrap();
    assert!(expiry >= before + 60_000, "{expiry} is too soon after {before}");
}
