//! A MariaDB that does not answer, and tries that wait in it.

use std::time::{Duration, Instant};

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
    mariadb::MariaDb,
};
use sqlx::{Connection, Executor};
use testbed::wait::until_async;

use super::{connect, locked};
use crate::{
    lock_service::ttl,
    names::name,
    sql::{self, granted},
};

#[tokio::test]
async fn paused_database_is_unavailable_in_time() {
    let (server, client) = locked().await;
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let client = client.answer_within(Duration::from_millis(500));
    server.pause().await.unwrap();
    for client in [&client, &MariaDb::open(&server.url()).unwrap()] {
        let (lock, holder, begun) = (name("r"), Holder::random(), Instant::now());
        let error = client.try_acquire(&lock, &holder, ttl(10), Order::Fair).await.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    server.resume().unwrap();
    granted(&client, "another", &Holder::random(), 600_000).await.unwrap();
}

#[tokio::test]
async fn late_try_is_released() {
    let (server, client) = locked().await;
    sql::late_try_is_released(client, || server.pause(), || server.resume()).await.unwrap();
}

#[tokio::test]
async fn release_does_not_overtake_a_lost_try() {
    let (server, observer) = locked().await;
    let mut other = connect(&server).await;
    let insert = "insert into fenced_lock (name, token) values ('overtaken', 1)";
    other.execute(insert).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    let lock = "select * from fenced_lock where name = 'overtaken' for update";
    transaction.execute(lock).await.unwrap();
    let proxy = testbed::Proxy::start(server.socket()).await.unwrap();
    let url = format!("mariadb://root@{}/test?ssl-mode=DISABLED", proxy.address());
    let client = MariaDb::open(&url).unwrap().answer_within(Duration::from_secs(3));
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

#[tokio::test]
async fn renewals_do_not_wait_behind_tries() {
    let (server, client) = locked().await;
    let mut connection = connect(&server).await;
    let insert = "insert into fenced_lock (name, token) values ('blocked', 1)";
    connection.execute(insert).await.unwrap();
    let waiter = sql::waiter_of_a_free_lock(&client, "left").await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    transaction
        .execute("select * from fenced_lock where name in ('blocked', 'left') for update")
        .await
        .unwrap();
    let client = client.answer_within(Duration::from_secs(20));
    let is_waiting = async || is_waiting_for_a_row(&server).await;
    sql::renewals_do_not_wait_behind_tries(&client, &waiter, is_waiting).await.unwrap();
}

/// Whether a request waits for a row that another one has locked.
async fn is_waiting_for_a_row(server: &testbed::MariaDb) -> anyhow::Result<bool> {
    let waits = "select cast(variable_value as signed) from information_schema.global_status
        where variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
    let mut connection = connect(server).await;
    Ok(sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut connection).await? > 0)
}

/// Somebody else alters the table, and every request waits for that. None waits for hours: the server
/// gives up each of them soon, and is not left with sessions whose clients have gone.
#[tokio::test]
async fn altered_table_leaves_no_sessions_behind() {
    let (server, client) = locked().await;
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let mut other = connect(&server).await;
    other.execute("lock tables fenced_lock write").await.unwrap();
    for _ in 0..4 {
        let client = MariaDb::open(&server.url()).unwrap();
        let error = client
            .try_acquire(&name("r"), &Holder::random(), ttl(600_000), Order::Unordered)
            .await
            .unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
    }
    let waiting = "select count(*) from information_schema.processlist where state like 'Waiting%'";
    let gave_up = async || {
        let mut observer = connect(&server).await;
        Ok(sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut observer).await? == 0)
    };
    until_async(Duration::from_secs(10), gave_up).await.unwrap();
    other.execute("unlock tables").await.unwrap();
    granted(&client, "another", &Holder::random(), 600_000).await.unwrap();
}
