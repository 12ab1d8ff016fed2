//! Servers and databases killed under load: what was acknowledged is there afterwards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fence::ResourceName;
use lock_client::storage::{Answer, Storage, StorageError};
use rustix::process::Signal;
use sqlx::{Connection, Database, Executor, PgConnection, Sqlite};
use tempfile::TempDir;
use testbed::{
    Postgres, Proxy, StorageServer,
    proxy::HeldRequest,
    wait::{until, until_async},
};
use tokio::{task::JoinSet, time::timeout};

use crate::programs::storage_server;
use crate::{fences::new_fence, names::name, wire};

const CLIENTS: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that each write their own resource, again and again with growing tokens, until they are
/// stopped.
struct Load {
    clients: JoinSet<Written>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    unavailable: Arc<AtomicU64>,
}

/// The last write of a client that was acknowledged; its token is its value.
struct Written {
    resource: ResourceName,
    version: u64,
    token: u64,
}

impl Load {
    fn on(url: &str) -> Self {
        let mut load = Self {
            clients: JoinSet::new(),
            stop: Arc::default(),
            acknowledged: Arc::default(),
            unavailable: Arc::default(),
        };
        for client in 0..CLIENTS {
            let storage = Storage::new(url).unwrap();
            let (stop, acknowledged) = (load.stop.clone(), load.acknowledged.clone());
            let unavailable = load.unavailable.clone();
            load.clients.spawn(async move {
                let resource = name(&format!("client/{client}"));
                let mut last = Written { resource, version: 0, token: 0 };
                let mut token = 0;
                while !stop.load(Ordering::Relaxed) {
                    token += 1;
                    let (fence, value) = (new_fence(token), token.to_string());
                    match storage.write(&last.resource, &fence, "text/plain", value).await {
                        Ok(Answer::Accepted(version)) => {
                            last = Written { version, token, ..last };
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(Answer::Rejected(rejection)) => panic!("rejected: {rejection:?}"),
                        Err(StorageError::Unavailable(_) | StorageError::Unknown(_)) => {
                            unavailable.fetch_add(1, Ordering::Relaxed);
                            tokio::task::yield_now().await;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                last
            });
        }
        load
    }

    /// Waits until so many more writes were acknowledged.
    async fn acknowledges(&self, more: u64) {
        let enough = self.acknowledged.load(Ordering::Relaxed) + more;
        until(PATIENCE, || Ok(self.acknowledged.load(Ordering::Relaxed) >= enough)).await.unwrap();
    }

    async fn stop(self) -> Vec<Written> {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await
    }
}

/// Checks that the storage has every acknowledged write, or a later one of the same client.
async fn assert_nothing_is_lost(url: &str, written: &[Written]) {
    let storage = Storage::new(url).unwrap();
    for Written { resource, version, token } in written {
        assert!(*version > 0, "{resource} was written");
        let value = storage.read(resource).await.unwrap().unwrap();
        let found: u64 = std::str::from_utf8(&value.bytes).unwrap().parse().unwrap();
        assert!(
            value.version >= *version,
            "{resource}: version {version} became {}",
            value.version
        );
        assert!(found >= *token, "{resource}: token {token} became {found}");
        assert_eq!(value.version == *version, found == *token, "{resource}");
        if *token > 1 {
            let late = storage.claim(resource, &new_fence(token - 1)).await.unwrap();
            assert!(matches!(late, Answer::Rejected(_)), "{resource}: the fence went down");
        }
    }
}

/// Kills a storage server under load, and starts another one on its database.
async fn kill_and_start_again(database_url: &str) {
    let mut server = StorageServer::start_on(&storage_server(), database_url, &[]).await.unwrap();
    let load = Load::on(server.url());
    load.acknowledges(500).await;
    server.process().kill().unwrap();
    let written = load.stop().await;
    let server = StorageServer::start_on(&storage_server(), database_url, &[]).await.unwrap();
    assert_nothing_is_lost(server.url(), &written).await;
}

#[tokio::test]
async fn killed_server_on_sqlite_keeps_what_it_acknowledged() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    kill_and_start_again(&format!("sqlite:{}", folder.path().join("fenced.db").display())).await;
}

#[tokio::test]
async fn killed_server_on_postgres_keeps_what_it_acknowledged() {
    let postgres = Postgres::start().await.unwrap();
    kill_and_start_again(&postgres.url()).await;
}

#[tokio::test]
async fn crashed_postgres_is_answered_503_and_comes_back_without_a_restart() {
    let mut postgres = Postgres::start().await.unwrap();
    let server = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let load = Load::on(server.url());
    for _ in 0..2 {
        load.acknowledges(300).await;
        let before = load.unavailable.load(Ordering::Relaxed);
        postgres.crash().await.unwrap();
        until(PATIENCE, || Ok(load.unavailable.load(Ordering::Relaxed) > before)).await.unwrap();

        let headers = [("Fencing-Token", "1")];
        let url = server.url();
        let answer = wire::request(url, "PUT", "/v1/resources/r", &headers, "x").await;
        assert_eq!(answer.problem(), "503 unavailable");
        assert_eq!(answer.json()["outcome"], "none", "nothing was sent to a dead database");
        assert!(answer.header("retry-after").is_some());
        for path in ["/readyz", "/v1/resources/r", "/v1/resources"] {
            let answer = wire::request(url, "GET", path, &[], "").await;
            assert_eq!(answer.problem(), "503 unavailable", "{path}");
        }
        assert_eq!(wire::request(url, "GET", "/livez", &[], "").await.status, 200);

        postgres.start_again().await.unwrap();
    }
    load.acknowledges(300).await;
    let written = load.stop().await;
    assert_nothing_is_lost(server.url(), &written).await;
}

/// The database makes the change, and its answer is lost.
#[tokio::test]
async fn lost_answer_of_the_database_is_an_unknown_outcome() {
    let postgres = Postgres::start().await.unwrap();
    let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let put = async |token, value| {
        let headers = [("Fencing-Token", token)];
        wire::request(server.url(), "PUT", "/v1/resources/r", &headers, value).await
    };
    assert_eq!(put("33", "one").await.status, 201);
    proxy.lose_reply_to("second value");
    let unknown = put("34", "second value").await;
    assert!(proxy.has_struck());
    assert_eq!(unknown.problem(), "503 unavailable");
    assert_eq!(unknown.json()["outcome"], "unknown");
    assert_eq!(unknown.header("retry-after"), Some("1"));

    let value = wire::request(server.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!(value.text(), "second value", "it had happened");
    assert_eq!(put("33", "late").await.problem(), "412 stale-token");
    assert_eq!(put("34", "three").await.json()["version"], 3);
}

/// A server whose committer asks which rows are locked, and gets no answer.
struct SilentQuery {
    server: StorageServer,
    _writes: JoinSet<()>,
    _rival: PgConnection,
    _silent: HeldRequest,
    _proxy: Proxy,
    _postgres: Postgres,
}

impl SilentQuery {
    async fn start() -> Self {
        let postgres = Postgres::start().await.unwrap();
        let proxy = Proxy::start(postgres.socket_folder().join(".s.PGSQL.5432")).await.unwrap();
        let url = format!("postgres://postgres@{}/postgres", proxy.address());
        let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
        let write = async |server: String, resource: String, token| {
            let storage = Storage::new(&server).unwrap();
            storage.write(&name(&resource), &new_fence(token), "text/plain", "x").await
        };
        for number in 0..10 {
            let written = write(server.url().to_owned(), format!("locked/{number}"), 1).await;
            assert!(matches!(written, Ok(Answer::Accepted(_))));
        }
        let mut rival = PgConnection::connect(&postgres.url()).await.unwrap();
        sqlx::query("begin").execute(&mut rival).await.unwrap();
        let lock = "select from storage.resource for update";
        sqlx::query(lock).execute(&mut rival).await.unwrap();

        let held = proxy.hold("skip locked");
        let mut writes = JoinSet::new();
        for number in 0..10 {
            for resource in [format!("locked/{number}"), format!("other/{number}")] {
                let write = write(server.url().to_owned(), resource, 2);
                writes.spawn(async { drop(write.await) });
            }
        }
        let silent = timeout(PATIENCE, held.caught()).await.expect("it asks").unwrap();
        Self {
            server,
            _writes: writes,
            _rival: rival,
            _silent: silent,
            _proxy: proxy,
            _postgres: postgres,
        }
    }
}

#[tokio::test]
async fn query_without_an_answer_stops_no_writes_for_ever() {
    let SilentQuery { server, .. } = &SilentQuery::start().await;
    let storage = Storage::new(server.url()).unwrap();
    // While it waits, it says so.
    let waits = async || {
        let ready = wire::request(server.url(), "GET", "/readyz", &[], "").await;
        Ok(ready.json()["oldest_operation_ms"].as_u64().is_some_and(|waited| waited > 1_000))
    };
    until_async(PATIENCE, waits).await.unwrap();
    let (resource, fence) = (name("new"), new_fence(1));
    let written = storage.write(&resource, &fence, "text/plain", "x");
    let answer = timeout(PATIENCE, written).await.expect("the committer goes on").unwrap();
    assert!(matches!(answer, Answer::Accepted(_)));
}

#[tokio::test]
async fn sigterm_ends_a_server_that_waits_for_a_query() {
    let SilentQuery { server, .. } = &mut SilentQuery::start().await;
    server.process().signal(Signal::TERM).unwrap();
    let status = server.process().exit(Duration::from_secs(30)).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Many clients list, and each list reads very many tombstones.
async fn lists_fail_no_writes<DB: Database>(database: &str, fill: &'static str)
where
    for<'a> &'a mut DB::Connection: Executor<'a, Database = DB>,
{
    let server = StorageServer::start_on(&storage_server(), database, &[]).await.unwrap();
    let mut connection = DB::Connection::connect(database).await.unwrap();
    connection.execute(fill).await.unwrap();
    let mut listers = JoinSet::new();
    let listed = Arc::new(AtomicU64::new(0));
    for _ in 0..60 {
        let (url, listed) = (server.url().to_owned(), listed.clone());
        listers.spawn(async move {
            loop {
                wire::request(&url, "GET", "/v1/resources", &[], "").await;
                listed.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    until(PATIENCE, || Ok(listed.load(Ordering::Relaxed) > 60)).await.unwrap();
    for number in 0..40 {
        // Its row must be loaded, because no earlier write lets the server guess it.
        let path = format!("/v1/resources/{number}");
        let headers = [("Fencing-Token", "1")];
        let written = wire::request(server.url(), "PUT", &path, &headers, "x").await;
        assert_eq!(written.status, 201, "{written:?}");
    }
}

#[tokio::test]
async fn lists_fail_no_writes_on_sqlite() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let fill = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 1500000)
        insert into storage_resource (resource, token, holder, version)
        select 'tombstone/' || i, 1, '', 2 from n";
    lists_fail_no_writes::<Sqlite>(&url, fill).await;
}

#[tokio::test]
async fn lists_fail_no_writes_on_postgres() {
    let postgres = Postgres::start().await.unwrap();
    let fill = "insert into storage.resource (resource, token, holder, version)
        select 'tombstone/' || i, 1, '', 2 from generate_series(1, 1500000) i";
    lists_fail_no_writes::<sqlx::Postgres>(&postgres.url(), fill).await;
}
