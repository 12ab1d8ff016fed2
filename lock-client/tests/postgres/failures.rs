//! A PostgreSQL that is not as it should be.

use std::{
    fs,
    time::{Duration, Instant},
};

use fence::Holder;
use lock_client::{
    Locks, Order, Terms,
    backend::{Backend, BackendError},
    postgres::{Postgres, install},
};
use sqlx::{Connection, Executor, PgConnection};
use testbed::{Proxy, wait::until_async};

use super::{locked, patient};
use crate::{
    lock_service::{ttl, unrenewed, with_causes},
    names::name,
    sql::{self, granted},
};

const SOON: Duration = Duration::from_secs(30);
/// How long a client waits for a database that does not answer.
const AT_ONCE: Duration = Duration::from_millis(500);

/// The outcome of every kind of request, and the longest time that one took.
async fn all_requests(client: &Postgres) -> (Vec<Option<BackendError>>, Duration) {
    let (lock, holder) = (name("r"), Holder::random());
    let ownership = lock_client::backend::Ownership {
        holder: holder.clone(),
        grant: fence::Token::new(7).unwrap(),
    };
    let mut longest = Duration::ZERO;
    let mut errors = Vec::new();
    for request in 0..5 {
        let begun = Instant::now();
        errors.push(match request {
            0 => client.try_acquire(&lock, &holder, ttl(10), Order::Fair).await.err(),
            1 => client.renew(&lock, &ownership, ttl(10)).await.err(),
            2 => client.reissue(&lock, &ownership, ownership.grant).await.err(),
            3 => client.release(&lock, &holder, None).await.err(),
            _ => client.status(&lock).await.err(),
        });
        longest = longest.max(begun.elapsed());
    }
    (errors, longest)
}

#[tokio::test]
async fn missing_schema_is_rejected_with_a_hint() {
    let server = testbed::Postgres::start().await.unwrap();
    let client = patient(&server.url());
    for error in all_requests(&client).await.0 {
        let error = error.unwrap();
        assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
        assert!(with_causes(&error).contains("apply migrations/postgres/lock"), "{error:?}");
    }
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    install(&mut connection).await.unwrap();
    install(&mut connection).await.unwrap();
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
}

#[tokio::test]
async fn missing_table_is_rejected_with_a_hint() {
    let (server, client) = locked().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute("drop table fenced_lock.lock").await.unwrap();
    for error in all_requests(&client).await.0 {
        let error = error.unwrap();
        assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
        assert!(with_causes(&error).contains("apply migrations/postgres/lock"), "{error:?}");
    }
}

#[tokio::test]
async fn user_needs_a_right_on_the_schema_and_none_on_the_tables() {
    let (server, _) = locked().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute("create role locker login").await.unwrap();
    let client = patient(&server.url().replace("//postgres@", "//locker@"));
    for error in all_requests(&client).await.0 {
        let error = error.unwrap();
        assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
        assert!(with_causes(&error).contains("grant usage on schema fenced_lock"), "{error:?}");
    }
    connection.execute("grant usage on schema fenced_lock to locker").await.unwrap();
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut locker =
        PgConnection::connect(&server.url().replace("//postgres@", "//locker@")).await.unwrap();
    for forbidden in [
        "select holder from fenced_lock.lock",
        "update fenced_lock.lock set token = 1",
        "delete from fenced_lock.queue",
        "create table fenced_lock.mine ()",
        "select fenced_lock.first_waiter('r')",
    ] {
        let error = locker.execute(forbidden).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "42501", "{forbidden}");
    }
}

#[tokio::test]
async fn wrong_password_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let hba = folder.path().join("hba.conf");
    fs::write(&hba, "local all postgres trust\nlocal all all scram-sha-256\n").unwrap();
    // PostgreSQL runs as another user.
    let public = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), public).unwrap();
    let setting = format!("hba_file={}", hba.display());
    let server = testbed::Postgres::start_with(&[&setting]).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute("create role locker login password 'right'").await.unwrap();
    let hosts = testbed::Postgres::url_of_all(&[&server, &server]);
    for url in [server.url(), hosts] {
        let client = patient(&url.replace("//postgres@", "//locker:wrong@"));
        for error in all_requests(&client).await.0 {
            let error = error.unwrap();
            assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
            assert!(!with_causes(&error).contains("wrong"), "{error:?}");
        }
        assert!(!client.address().contains("wrong") && !format!("{client:?}").contains("wrong"));
    }
}

/// The first request of a client that is connected, and of one that is not.
#[tokio::test]
async fn paused_database_is_unavailable_in_time() {
    let (server, client) = locked().await;
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let client = client.answer_within(AT_ONCE);
    let unconnected = Postgres::open(&server.url()).unwrap().answer_within(AT_ONCE);
    server.pause().await.unwrap();
    for client in [&client, &unconnected] {
        let (errors, longest) = all_requests(client).await;
        for error in errors {
            assert!(matches!(error, Some(BackendError::Unavailable(_))), "{error:?}");
        }
        assert!(longest < Duration::from_secs(10), "{longest:?}");
    }
    server.resume().unwrap();
    for client in [&client, &unconnected] {
        granted(client, "another", &Holder::random(), 1_000).await.unwrap();
        // An answer may be late on a busy machine.
        let free = async || {
            Ok(client.status(&name("another")).await.is_ok_and(|status| status.held.is_none()))
        };
        until_async(SOON, free).await.unwrap();
    }
}

/// A client whose acquire times out releases what it may have acquired, after the acquire.
#[tokio::test]
async fn attempt_that_a_paused_database_carries_out_late_is_undone() {
    let (server, client) = locked().await;
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let locks = Locks::new(client.clone().answer_within(AT_ONCE));
    locks.status(&name("late")).await.unwrap();
    server.pause().await.unwrap();
    locks.acquire(&name("late"), unrenewed(600_000)).await.unwrap_err();
    server.resume().unwrap();
    locks.wait_for_background().await;
    let free = async || Ok(client.status(&name("late")).await.is_ok_and(|now| now.held.is_none()));
    until_async(SOON, free).await.unwrap();
}

#[tokio::test]
async fn late_try_is_released() {
    let (server, client) = locked().await;
    sql::late_try_is_released(client, || server.pause(), || server.resume()).await.unwrap();
}

#[tokio::test]
async fn release_does_not_overtake_a_lost_try() {
    let (server, observer) = locked().await;
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let insert = "insert into fenced_lock.lock (name, token) values ('overtaken', 1)";
    other.execute(insert).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    let lock = "select * from fenced_lock.lock where name = 'overtaken' for update";
    transaction.execute(lock).await.unwrap();
    let proxy = Proxy::start(server.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    let client = Postgres::open(&url).unwrap().answer_within(Duration::from_secs(3));
    let is_waiting = async || is_waiting_for_a_row(&server).await;
    let lose_connections = || {
        // The undo is lost, too, and repeated.
        proxy.lose_request("release(");
        proxy.cut();
        proxy.mend();
    };
    let unlock = async || Ok(transaction.rollback().await?);
    sql::release_does_not_overtake_a_lost_try(
        client,
        is_waiting,
        lose_connections,
        unlock,
        &observer,
    )
    .await
    .unwrap();
    assert!(proxy.has_struck());
}

/// A standby has gone, and commits wait for it. No time-out of PostgreSQL ends that. A session whose
/// client has gone waits as well, so clients that connect again and again would take all sessions.
#[tokio::test]
async fn stuck_commits_leave_few_sessions_behind() {
    let (server, client) = locked().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    connection.execute("alter system set synchronous_standby_names = 'gone'").await.unwrap();
    connection.execute("select pg_reload_conf()").await.unwrap();
    let impatient = client.clone().answer_within(Duration::from_millis(50));
    for _ in 0..60 {
        let holder = Holder::random();
        let lock = name(holder.as_str());
        let tried = impatient.try_acquire(&lock, &holder, ttl(10), Order::Unordered).await;
        let error = tried.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
    }
    let stuck = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'";
    let stuck: i64 = sqlx::query_scalar(stuck).fetch_one(&mut connection).await.unwrap();
    assert!((1..=8).contains(&stuck), "{stuck} sessions wait for a commit");
    connection.execute("alter system reset synchronous_standby_names").await.unwrap();
    connection.execute("select pg_reload_conf()").await.unwrap();
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    // The same client goes on, although none of its connections was answered before.
    let (lock, holder) = (name("r2"), Holder::random());
    let tried = async || impatient.try_acquire(&lock, &holder, ttl(60_000), Order::Unordered).await;
    until_async(SOON, async || Ok(tried().await.is_ok())).await.unwrap();
}

#[tokio::test]
async fn row_that_another_session_locks_is_unavailable_in_time() {
    let (server, client) = locked().await;
    let client = client.answer_within(Duration::from_secs(60));
    granted(&client, "r", &Holder::random(), 1_000).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    transaction.execute("select from fenced_lock.lock for update").await.unwrap();
    let free = async || Ok(client.status(&name("r")).await.unwrap().held.is_none());
    until_async(SOON, free).await.unwrap();
    let begun = Instant::now();
    let (lock, other) = (name("r"), Holder::random());
    let impatient = client.clone().answer_within(AT_ONCE);
    let blocked = impatient.try_acquire(&lock, &other, ttl(10), Order::Unordered).await;
    assert!(matches!(blocked.unwrap_err(), BackendError::Unavailable(_)));
    assert!(begun.elapsed() < Duration::from_secs(10));
    transaction.rollback().await.unwrap();
    // The server may carry it out after all, even after its release. Then it expires.
    let undone = async || Ok(client.release(&lock, &other, None).await.is_ok());
    until_async(SOON, undone).await.unwrap();
    let is_granted = async || Ok(granted(&client, "r", &Holder::random(), 1_000).await.is_ok());
    until_async(SOON, is_granted).await.unwrap();
}

#[tokio::test]
async fn renewals_do_not_wait_behind_tries() {
    let (server, client) = locked().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let insert = "insert into fenced_lock.lock (name, token) values ('blocked', 1)";
    connection.execute(insert).await.unwrap();
    let waiter = sql::waiter_of_a_free_lock(&client, "left").await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    transaction.execute("select from fenced_lock.lock for update").await.unwrap();
    let client = client.answer_within(Duration::from_secs(20));
    let is_waiting = async || is_waiting_for_a_row(&server).await;
    sql::renewals_do_not_wait_behind_tries(&client, &waiter, is_waiting).await.unwrap();
}

/// Whether a request waits for a row that another one has locked.
async fn is_waiting_for_a_row(server: &testbed::Postgres) -> anyhow::Result<bool> {
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    let mut connection = PgConnection::connect(&server.url()).await?;
    Ok(sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut connection).await? > 0)
}

#[tokio::test]
async fn waiter_survives_a_restart_of_the_server() {
    let (mut server, client) = locked().await;
    let (holder, waiting) = (Locks::new(client.clone()), Locks::new(client));
    for order in [Terms::new(ttl(600_000)), Terms::new(ttl(600_000)).fair()] {
        let lease = holder.acquire(&name("r"), unrenewed(600_000)).await.unwrap();
        let waiting = waiting.clone();
        let waiter = tokio::spawn(async move { waiting.acquire(&name("r"), order).await });
        until_async(SOON, async || listens(&server).await).await.unwrap();
        server.crash().await.unwrap();
        server.start_again().await.unwrap();
        lease.release().await.unwrap();
        let lease = tokio::time::timeout(Duration::from_secs(8), waiter).await.unwrap().unwrap();
        lease.unwrap().release().await.unwrap();
    }
}

/// Whether a client listens for notifications.
pub(super) async fn listens(server: &testbed::Postgres) -> anyhow::Result<bool> {
    let mut connection = PgConnection::connect(&server.url()).await?;
    let query = r#"select count(*) from pg_stat_activity where query = 'LISTEN "fenced_lock"'"#;
    Ok(sqlx::query_scalar::<_, i64>(query).fetch_one(&mut connection).await? > 0)
}

#[test]
fn url_of_something_else_is_rejected() {
    for url in ["redis://localhost", "postgres://localhost:port/", "mysql://localhost"] {
        Postgres::open(url).unwrap_err();
    }
    let client = Postgres::open("postgres://me:secret@db:5433/locks?sslmode=require").unwrap();
    assert_eq!(client.address(), "postgres://db:5433/locks");
}
