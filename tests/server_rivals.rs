//! Rivals at the same database: a server that is paused in the middle of its work, and another
//! client's open transaction.

use std::{sync::Arc, time::Duration};

use lock_client::storage::{Answer, Storage, StorageError};
use rustix::process::Signal;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use testbed::{
    Postgres, StorageServer,
    wait::{until, until_async},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::programs::storage_server;
use crate::{
    fences::{Counter, new_fence},
    names::name,
    wire,
    world::World,
};

const RESOURCES: u64 = 8;
/// Many more than the server writes at once while they are blocked.
const OTHERS: usize = 40;

#[tokio::test]
async fn stopped_server_does_not_stop_the_other() {
    let postgres = Postgres::start().await.unwrap();
    let mut stopped =
        StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let tokens = Arc::new(Counter::default());

    // Both servers work on the same resources. The first is stopped ten times at an arbitrary
    // moment of it; each time the other one has to finish writes on all of them.
    let mut load = JoinSet::new();
    for client in 0..16 {
        let storage = Storage::new(stopped.url()).unwrap();
        let tokens = tokens.clone();
        load.spawn(async move {
            loop {
                let resource = name(&format!("r/{}", client % RESOURCES));
                let _ = storage.write(&resource, &tokens.next(), "text/plain", "one").await;
            }
        });
    }
    let storage = Storage::new(other.url()).unwrap();
    for _ in 0..10 {
        stopped.process().pause().await.unwrap();
        for resource in 0..RESOURCES {
            let resource = name(&format!("r/{resource}"));
            let fence = tokens.next();
            let written = storage.write(&resource, &fence, "text/plain", "other");
            let answer = timeout(Duration::from_secs(5), written).await.expect("it goes on");
            assert!(matches!(answer.unwrap(), Answer::Accepted(_)));
        }
        stopped.process().resume().unwrap();
        let again = Storage::new(stopped.url()).unwrap();
        let answer = again.write(&name("awake"), &tokens.next(), "text/plain", "x").await.unwrap();
        assert!(matches!(answer, Answer::Accepted(_)));
    }
}

/// Starts a transaction of another client with this statement, and leaves it open.
pub(crate) async fn open_transaction(postgres: &Postgres, statement: &'static str) -> PgConnection {
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    sqlx::query("begin").execute(&mut connection).await.unwrap();
    sqlx::query(statement).execute(&mut connection).await.unwrap();
    connection
}

/// A connection that sees who waits. It is opened before anything is blocked: the server gives up
/// after 5 s.
pub(crate) async fn observer(postgres: &Postgres) -> PgConnection {
    PgConnection::connect(&postgres.url()).await.unwrap()
}

/// Waits until a statement of the storage server waits for another client's lock.
pub(crate) async fn until_the_server_waits_for_a_lock(observer: &mut PgConnection) {
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    let seen = async {
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *observer).await.unwrap() == 0 {}
    };
    timeout(Duration::from_secs(10), seen).await.expect("nobody waits");
}

/// Writes to a blocked resource, and meanwhile to many others.
async fn others_continue_while_one_is_blocked(statement: &'static str) {
    let world = World::on_postgres(&[]).await;
    let url = world.server.url().to_owned();
    world.put("/v1/resources/blocked", &[("Fencing-Token", "1")], "x").await;
    let mut observer = observer(world.postgres.as_ref().unwrap()).await;
    let mut connected = Vec::new();
    for _ in 0..OTHERS {
        let storage = Storage::new(&url).unwrap();
        storage.read(&name("r")).await.unwrap();
        connected.push(storage);
    }
    let somebody = open_transaction(world.postgres.as_ref().unwrap(), statement).await;

    let blocked = |path: &'static str| {
        let url = url.clone();
        tokio::spawn(async move {
            wire::request(&url, "PUT", path, &[("Fencing-Token", "2")], "x").await
        })
    };
    let (old, new) = (blocked("/v1/resources/blocked"), blocked("/v1/resources/new"));
    until_the_server_waits_for_a_lock(&mut observer).await;
    let mut others = JoinSet::new();
    for (other, storage) in connected.into_iter().enumerate() {
        others.spawn(async move {
            storage.write(&name(&format!("r/{other}")), &new_fence(1), "text/plain", "x").await
        });
    }
    for answer in others.join_all().await {
        assert!(matches!(answer.unwrap(), Answer::Accepted(_)));
    }
    assert!(!(old.is_finished() && new.is_finished()), "one is blocked, and waits");

    somebody.close().await.unwrap();
    assert!(old.await.unwrap().status < 300);
    assert!(new.await.unwrap().status < 300);
}

#[tokio::test]
async fn others_continue_while_a_row_is_locked() {
    let lock = "select from storage.resource where resource = 'blocked' for update";
    others_continue_while_one_is_blocked(lock).await;
}

#[tokio::test]
async fn others_continue_while_the_same_row_is_being_inserted() {
    let insert = "insert into storage.resource (resource, holder, version) values ('new', '', 1)";
    others_continue_while_one_is_blocked(insert).await;
}

#[tokio::test]
async fn others_continue_while_many_rows_are_locked() {
    let world = World::on_postgres(&[]).await;
    let storage = Storage::new(world.server.url()).unwrap();
    let write = |resource: String, token| {
        let storage = storage.clone();
        async move { storage.write(&name(&resource), &new_fence(token), "text/plain", "x").await }
    };
    for number in 0..OTHERS {
        let written = write(format!("locked/{number}"), 1).await.unwrap();
        assert!(matches!(written, Answer::Accepted(_)));
    }
    let lock = "select from storage.resource for update";
    let mut observer = observer(world.postgres.as_ref().unwrap()).await;
    let somebody = open_transaction(world.postgres.as_ref().unwrap(), lock).await;
    let mut blocked = JoinSet::new();
    for number in 0..OTHERS {
        let written = write(format!("locked/{number}"), 2);
        blocked.spawn(async move { (number, written.await) });
    }
    until_the_server_waits_for_a_lock(&mut observer).await;
    let free: JoinSet<_> = (0..OTHERS).map(|number| write(format!("free/{number}"), 1)).collect();
    for answer in free.join_all().await {
        assert!(matches!(answer.unwrap(), Answer::Accepted(_)));
    }
    assert!(blocked.try_join_next().is_none(), "the locked ones are still waiting");
    somebody.close().await.unwrap();
    let mut stalled = 0;
    for (number, answer) in blocked.join_all().await {
        // PostgreSQL ends the transaction of a server that stalls for half a second: nothing has
        // happened.
        let answer = match answer {
            Err(StorageError::Unavailable(_)) => {
                stalled += 1;
                write(format!("locked/{number}"), 2).await
            }
            answer => answer,
        };
        assert!(matches!(answer.unwrap(), Answer::Accepted(_)));
    }
    assert!(stalled <= OTHERS / 2, "{stalled} of {OTHERS} writes were unavailable");
}

#[tokio::test]
async fn a_resource_that_stays_blocked_is_answered_503_with_outcome_none() {
    let world = World::on_postgres(&[]).await;
    world.put("/v1/resources/r", &[("Fencing-Token", "1")], "one").await;
    let lock = "select from storage.resource where resource = 'r' for update";
    let somebody = open_transaction(world.postgres.as_ref().unwrap(), lock).await;
    let answer = world.put("/v1/resources/r", &[("Fencing-Token", "2")], "two").await;
    assert_eq!(answer.problem(), "503 unavailable");
    assert_eq!(answer.json()["outcome"], "none");
    assert_eq!(answer.header("retry-after"), Some("1"));
    somebody.close().await.unwrap();
    let value = world.ask("GET", "/v1/resources/r", &[]).await;
    assert_eq!(value.text(), "one", "a write reported as not done was not done");
}

/// Another process has the SQLite file locked.
#[tokio::test]
async fn a_locked_sqlite_file_is_answered_503_with_outcome_none() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let put = async |token, value| {
        let headers = [("Fencing-Token", token)];
        wire::request(server.url(), "PUT", "/v1/resources/r", &headers, value).await
    };
    assert_eq!(put("1", "one").await.status, 201);
    let mut somebody = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("begin immediate").execute(&mut somebody).await.unwrap();
    let answer = put("2", "two").await;
    assert_eq!(answer.problem(), "503 unavailable");
    assert_eq!(answer.json()["outcome"], "none");
    sqlx::query("rollback").execute(&mut somebody).await.unwrap();
    let value = wire::request(server.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!(value.text(), "one", "a write reported as not done was not done");
    assert_eq!(put("2", "two").await.json()["version"], 2);
}

/// Another process has written to the SQLite file since the server did.
#[tokio::test]
async fn writes_of_another_process_to_the_sqlite_file_count() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let one = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    for (server, token, status) in [(&one, "33", 201), (&other, "34", 200), (&one, "33", 412)] {
        let headers = [("Fencing-Token", token)];
        let answer = wire::request(server.url(), "PUT", "/v1/resources/r", &headers, token).await;
        assert_eq!(answer.status, status);
    }
    let value = wire::request(one.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!((value.text().as_str(), value.header("etag")), ("34", Some("\"2\"")));
}

/// A server's last write was lost, as by a failover or a restored backup. Another server has given
/// the token to another holder.
async fn token_of_a_lost_write_conflicts(database: &str, lose: impl AsyncFnOnce()) {
    let one = StorageServer::start_on(&storage_server(), database, &[]).await.unwrap();
    let other = StorageServer::start_on(&storage_server(), database, &[]).await.unwrap();
    let put = async |server: &StorageServer, holder| {
        let headers = [("Fencing-Token", "34"), ("Fencing-Holder", holder)];
        wire::request(server.url(), "PUT", "/v1/resources/r", &headers, holder).await
    };
    assert_eq!(put(&one, "a").await.status, 201);
    lose().await;
    assert_eq!(put(&other, "b").await.status, 201);
    assert_eq!(put(&one, "a").await.problem(), "409 holder-conflict");
    let value = wire::request(one.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!(value.text(), "b");
}

#[tokio::test]
async fn token_of_a_lost_write_conflicts_on_sqlite() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let lose = async || {
        let mut restored = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("delete from storage_resource").execute(&mut restored).await.unwrap();
    };
    token_of_a_lost_write_conflicts(&url, lose).await;
}

#[tokio::test]
async fn token_of_a_lost_write_conflicts_on_postgres() {
    let postgres = Postgres::start().await.unwrap();
    let lose = async || {
        let mut restored = PgConnection::connect(&postgres.url()).await.unwrap();
        sqlx::query("delete from storage.resource").execute(&mut restored).await.unwrap();
    };
    token_of_a_lost_write_conflicts(&postgres.url(), lose).await;
}

/// Clients disconnect while their writes wait for a lock.
#[tokio::test]
async fn abandoned_writes_are_not_made() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let mut rival = SqliteConnection::connect(&url).await.unwrap();
    sqlx::query("begin immediate").execute(&mut rival).await.unwrap();
    let waiting = tokio::spawn({
        let url = server.url().to_owned();
        let headers = [("Fencing-Token", "1")];
        async move { wire::request(&url, "PUT", "/v1/resources/waiting", &headers, "x").await }
    });
    // It is in a batch before the others come: two of them could share one with it.
    let in_a_batch = async || {
        let metrics = wire::request(server.url(), "GET", "/metrics", &[], "").await.text();
        Ok(metrics.lines().any(|line| line == "storage_server_batch_operations_count 1"))
    };
    until_async(Duration::from_secs(20), in_a_batch).await.unwrap();
    for number in 0..5 {
        let mut connection = wire::connect(server.url()).await;
        let put = format!(
            "PUT /v1/resources/abandoned/{number} HTTP/1.1\r\nHost: localhost\r\nFencing-Token: 1\r\n\
             Content-Length: 1\r\n\r\nx"
        );
        connection.write_all(put.as_bytes()).await.unwrap();
        // The server must have queued it: nothing shows that.
        sleep(Duration::from_millis(20)).await;
        connection.shutdown().await.unwrap();
        // It closes the connection without an answer when it has noticed that its client is gone.
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        assert!(answer.is_empty());
    }
    rival.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().status, 201, "the control: its client waits");
    let mut made = 0;
    for number in 0..5 {
        let path = format!("/v1/resources/abandoned/{number}");
        let read = wire::request(server.url(), "GET", &path, &[], "").await;
        made += u32::from(read.status == 200);
    }
    assert!(made <= 1, "only the first may have been in a batch already: {made}");
}

/// The server stops while an operation is queued that can't be decided yet.
#[tokio::test]
async fn sigterm_answers_what_is_queued_and_takes_nothing_new() {
    let mut world = World::on_postgres(&[]).await;
    world.put("/v1/resources/r", &[("Fencing-Token", "1")], "one").await;
    let lock = "select from storage.resource where resource = 'r' for update";
    let mut observer = observer(world.postgres.as_ref().unwrap()).await;
    let somebody = open_transaction(world.postgres.as_ref().unwrap(), lock).await;
    let url = world.server.url().to_owned();
    let queued = tokio::spawn({
        let url = url.clone();
        async move {
            wire::request(&url, "PUT", "/v1/resources/r", &[("Fencing-Token", "2")], "two").await
        }
    });
    until_the_server_waits_for_a_lock(&mut observer).await;

    world.server.process().signal(Signal::TERM).unwrap();
    let address = url.strip_prefix("http://").unwrap();
    until(Duration::from_secs(10), || Ok(std::net::TcpStream::connect(address).is_err()))
        .await
        .unwrap();
    assert!(!queued.is_finished());

    somebody.close().await.unwrap();
    let answer = queued.await.unwrap();
    assert_eq!((answer.status, answer.json()["version"].as_u64()), (200, Some(2)));
    let status = world.server.process().exit(Duration::from_secs(10)).await.unwrap();
    assert_eq!(status.code(), Some(0));
}
