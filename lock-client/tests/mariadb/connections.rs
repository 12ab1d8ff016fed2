//! How many connections a client has, and how they are made.

use std::{sync::Arc, time::Duration};

use fence::Holder;
use lock_client::{Locks, Released, Terms, backend::Backend, mariadb::MariaDb};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

use super::{connect, install, patient};
use crate::{
    lock_service::{lasting, ttl, with_causes},
    names::name,
    sql::{self, granted},
};

async fn locked_with(options: &[&str]) -> testbed::MariaDb {
    let server = testbed::MariaDb::start_with(options).await.unwrap();
    install(&mut connect(&server).await).await.unwrap();
    for statement in ["create user named@localhost", "grant execute on test.* to named@localhost"] {
        connect(&server).await.execute(statement).await.unwrap();
    }
    server
}

/// A client whose connections are told by their user, who has no special rights.
fn named(server: &testbed::MariaDb) -> Locks {
    Locks::new(patient(&server.url().replace("//root@", "//named@")))
}

async fn connections(server: &testbed::MariaDb) -> anyhow::Result<Vec<i64>> {
    let ids = "select cast(id as signed) from information_schema.processlist where user = 'named'";
    Ok(sqlx::query_scalar(ids).fetch_all(&mut connect(server).await).await?)
}

async fn count(server: &testbed::MariaDb) -> anyhow::Result<i64> {
    Ok(connections(server).await?.len().try_into()?)
}

async fn cut(server: &testbed::MariaDb) -> anyhow::Result<()> {
    for id in connections(server).await? {
        connect(server).await.execute(AssertSqlSafe(format!("kill {id}"))).await?;
    }
    Ok(())
}

/// Takes all connections that the server has left, and each that it gets back.
async fn take_all(server: &testbed::MariaDb) -> anyhow::Result<JoinSet<()>> {
    let full = Arc::new(Notify::new());
    let mut taking = JoinSet::new();
    for _ in 0..3 {
        let (url, full) = (server.url(), full.clone());
        taking.spawn(async move {
            let mut taken = Vec::new();
            loop {
                match MySqlConnection::connect(&url).await {
                    Ok(connection) => taken.push(connection),
                    Err(_) => full.notify_one(),
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    full.notified().await;
    Ok(taking)
}

#[tokio::test]
async fn holder_needs_no_free_connection() {
    let server = locked_with(&["--max-connections=10"]).await;
    // Its answers are waited for as long as by default.
    let locks = Locks::new(MariaDb::open(&server.url()).unwrap());
    sql::holder_needs_no_free_connection(&locks, async || take_all(&server).await).await.unwrap();
}

#[tokio::test]
async fn holder_outlives_a_pause() {
    let server = locked_with(&["--max-connections=10"]).await;
    let locks = Locks::new(MariaDb::open(&server.url()).unwrap());
    let (take_all, pause) = (async || take_all(&server).await, async || server.pause().await);
    sql::holder_outlives_a_pause(&locks, take_all, pause, || server.resume()).await.unwrap();
}

#[tokio::test]
async fn waiter_has_one_connection() {
    let server = locked_with(&[]).await;
    let count = async || count(&server).await;
    let (holder, waiting) = (Locks::new(patient(&server.url())), named(&server));
    let connections = sql::connections_of_a_waiter(&holder, &waiting, count).await;
    assert_eq!(connections.unwrap(), 1);
}

#[tokio::test]
async fn cut_connection_is_made_again_at_once() {
    let server = locked_with(&[]).await;
    let (cut, count) = (async || cut(&server).await, async || count(&server).await);
    sql::cut_connection_is_made_again(&named(&server), cut, count).await.unwrap();
}

#[tokio::test]
async fn release_over_a_cut_connection_says_what_was_true() {
    let server = locked_with(&[]).await;
    let cut = async || cut(&server).await;
    sql::release_over_a_cut_connection_says_what_was_true(&named(&server), cut).await.unwrap();
}

#[tokio::test]
async fn lock_is_released_though_idle_connections_are_closed() {
    let server = locked_with(&["--wait-timeout=2"]).await;
    let locks = Locks::new(patient(&server.url()));
    let lease = locks.acquire(&name("idle"), lasting()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// Without a commit after each statement, all reads of a connection would see the state at its first one.
#[tokio::test]
async fn state_is_the_present_one_without_autocommit() {
    use futures_util::TryStreamExt;

    let server = locked_with(&["--autocommit=0"]).await;
    let (observer, other) = (patient(&server.url()), patient(&server.url()));
    let names = async || observer.held_names("").try_concat().await.unwrap();
    assert_eq!(observer.status(&name("r")).await.unwrap().held, None);
    assert!(names().await.is_empty());
    let holder = Holder::random();
    granted(&other, "r", &holder, 600_000).await.unwrap();
    let held = observer.status(&name("r")).await.unwrap().held.expect("it is held");
    assert_eq!(held.ownership.holder, holder);
    assert_eq!(names().await, [name("r")]);
}

/// The first answer says so, and tries continue, because a failover looks the same.
#[tokio::test]
async fn server_that_takes_no_writes_is_named_and_tried_again() {
    let server = locked_with(&["--read-only"]).await;
    let locks = named(&server);
    let wait = |seconds| Terms::new(ttl(60_000)).wait(Duration::from_secs(seconds));
    let error = locks.acquire(&name("r"), wait(1)).await.unwrap_err();
    let text = with_causes(&error);
    assert!(text.contains("it takes no writes: it is read-only"), "{text}");
    let client = patient(&server.url().replace("//root@", "//named@"));
    sql::server_without_writes_answers_nothing(&client).await.unwrap();
    let waiting = tokio::spawn(async move { locks.acquire(&name("r"), wait(60)).await });
    connect(&server).await.execute("set global read_only = 0").await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn binary_log_of_statements_is_named() {
    let server = locked_with(&["--log-bin", "--binlog-format=STATEMENT"]).await;
    let terms = Terms::new(ttl(60_000)).wait(Duration::from_secs(1));
    let error = named(&server).acquire(&name("r"), terms).await.unwrap_err();
    let text = with_causes(&error);
    assert!(text.contains("set global binlog_format = 'MIXED'"), "{text}");
}

#[test]
fn setting_that_is_not_known_is_rejected_and_so_are_several_hosts() {
    for setting in ["sslmod=verify-full", "tls-ca=/ca.pem", "SSL-MODE=REQUIRED"] {
        let text = MariaDb::open(&format!("mariadb://db/locks?{setting}")).unwrap_err().to_string();
        let name = setting.split('=').next().unwrap();
        assert!(text.contains(&format!("`{name}` is no setting here")), "{text}");
        assert!(text.contains("the settings are ssl-mode, ssl-ca"), "{text}");
    }
    MariaDb::open("mariadb://db/locks?connect-timeout=3&ssl-mode=VERIFY_CA").unwrap();
    let text = MariaDb::open("mariadb://me:secret@a,b:3307/locks").unwrap_err().to_string();
    assert!(text.contains("several hosts (a,b:3307)"), "{text}");
    // A comma in a password that is not encoded is none between hosts.
    for password in ["sec,ret/x", "sec,ret?x", "sec,ret#x"] {
        let url = format!("mariadb://me:{password}@db/locks");
        let text = MariaDb::open(&url).unwrap_err().to_string();
        assert!(text.contains("write %2F") && !text.contains("sec"), "{text}");
    }
}
