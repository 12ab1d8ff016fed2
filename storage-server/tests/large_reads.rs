//! Reads of large values: over connections of their own, with memory, and only if they are sent.

#[cfg(target_os = "linux")]
mod memory;
mod memory_store;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fence::{Fence, Token};
use storage_server::{Access, Config, Content, Row, StoredValue, Value, WantedValue, serve};
use testbed::wait::until_async;
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};

use self::memory_store::{MemoryStore, Way};
use crate::{
    access::Guarded,
    database::{Database, get, offer, on_empty_databases},
    wire::{self, Answer},
};

const SMALL_BYTES: usize = 64 << 10;
const LARGE_BYTES: usize = 1 << 20;
const PATH: &str = "/v1/resources/r";

/// A server in this process, whose store has one resource with a large value of version 7, under token 2.
struct Served {
    store: Arc<MemoryStore>,
    url: String,
    _stop: oneshot::Sender<()>,
}

fn row(token: u64, version: u64, byte: u8) -> Row {
    let fence = Some(Fence { token: Token::new(token).unwrap(), holder: Default::default() });
    let bytes = vec![byte; LARGE_BYTES].into();
    let content = Content { content_type: "text/plain".to_owned(), bytes };
    let value = StoredValue::Present(Value { content, written_with: fence.clone() });
    Row { fence, version, value, ..Row::default() }
}

impl Served {
    async fn start() -> Self {
        Self::start_with(Config::default()).await
    }

    async fn start_with(config: Config) -> Self {
        let store = Arc::new(MemoryStore::default());
        store.change(|rows| {
            rows.insert("r".parse().unwrap(), row(2, 7, b'7'));
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        tokio::spawn(serve(listener, store.clone(), config, stopped));
        Self { store, url, _stop: stop }
    }

    async fn request(&self, method: &str, headers: &[(&str, &str)]) -> Answer {
        wire::request(&self.url, method, PATH, headers, "").await
    }

    async fn read_fenced(&self, token: &str) -> Answer {
        self.request("GET", &[("Fencing-Token", token)]).await
    }
}

#[tokio::test]
async fn head_and_known_version_load_no_large_value() {
    let served = Served::start().await;
    let small = (Way::Read, WantedValue::AtMost(SMALL_BYTES));
    let head = served.request("HEAD", &[]).await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), Some("1048576"));
    assert_eq!(head.header("content-type"), Some("text/plain"));
    assert_eq!(head.header("etag"), Some("\"7\""));
    assert_eq!(head.header("fencing-token"), Some("2"));
    assert_eq!(served.store.take_loads(), [small]);

    let known = served.request("GET", &[("If-None-Match", "\"7\"")]).await;
    assert_eq!((known.status, known.header("content-length")), (304, None));
    assert_eq!(known.header("etag"), Some("\"7\""));
    assert_eq!(served.store.take_loads(), [small]);

    // The control: what is sent is loaded.
    let sent = served.request("GET", &[("If-None-Match", "\"6\"")]).await;
    assert_eq!((sent.status, sent.body), (200, vec![b'7'; LARGE_BYTES]));
    let large = (Way::Read, WantedValue::AtMost(LARGE_BYTES));
    assert_eq!(served.store.take_loads(), [small, large]);
}

#[tokio::test]
async fn fenced_read_loads_a_large_value_beside_the_committer() {
    let served = Served::start().await;
    let read = served.read_fenced("3").await;
    assert_eq!((read.status, read.body), (200, vec![b'7'; LARGE_BYTES]));
    let small = (Way::Load, WantedValue::AtMost(SMALL_BYTES));
    let large = (Way::ReadDurable, WantedValue::AtMost(LARGE_BYTES));
    assert_eq!(served.store.take_loads(), [small, large]);
    let late = served.read_fenced("2").await;
    assert_eq!(late.problem(), "412 stale-token", "the read has claimed");
}

/// The value that is read was written under a higher token, so it is not the one that was claimed.
#[tokio::test]
async fn fenced_read_that_was_overtaken_by_a_write_is_unknown() {
    let served = Served::start().await;
    served.store.before_durable_read(|rows| {
        rows.insert("r".parse().unwrap(), row(9, 8, b'8'));
    });
    let read = served.read_fenced("3").await;
    assert_eq!(read.problem(), "503 unavailable");
    assert_eq!(read.json()["outcome"], "unknown");
}

/// It is a change like any other.
#[tokio::test]
async fn fenced_read_that_was_overtaken_by_a_delete_is_unknown_or_finds_no_value() {
    for (token, problem) in [(9, "503 unavailable"), (3, "404 not-found")] {
        let served = Served::start().await;
        served.store.before_durable_read(move |rows| {
            let deleted = Row { value: StoredValue::Absent, ..row(token, 8, b'8') };
            rows.insert("r".parse().unwrap(), deleted);
        });
        assert_eq!(served.read_fenced("3").await.problem(), problem);
    }
}

/// The claim was in force when it was decided, and this is the value of that moment.
#[tokio::test]
async fn fenced_read_that_was_overtaken_by_a_claim_has_the_value() {
    let served = Served::start().await;
    served.store.before_durable_read(|rows| {
        let row = rows.get_mut(&"r".parse().unwrap()).unwrap();
        row.fence.as_mut().unwrap().token = Token::new(9).unwrap();
    });
    let read = served.read_fenced("3").await;
    assert_eq!((read.status, read.header("fencing-token")), (200, Some("2")));
    assert_eq!(read.body, vec![b'7'; LARGE_BYTES]);
}

/// The client has written itself, over another connection. Its claim is still in force.
#[tokio::test]
async fn fenced_read_beside_a_write_of_the_same_client_has_the_new_value() {
    let served = Served::start().await;
    served.store.before_durable_read(|rows| {
        rows.insert("r".parse().unwrap(), row(3, 8, b'8'));
    });
    let read = served.read_fenced("3").await;
    assert_eq!((read.status, read.header("etag")), (200, Some("\"8\"")));
    assert_eq!(read.body, vec![b'8'; LARGE_BYTES]);
}

/// A client that has gone leaves the load behind, with its turn.
#[tokio::test]
async fn loads_are_few_at_once_though_their_clients_have_gone() {
    let served = Served::start().await;
    let gate = served.store.close_durable_reads();
    let mut gone = JoinSet::new();
    for _ in 0..8 {
        let url = served.url.clone();
        gone.spawn(async move {
            let token = [("Fencing-Token", "3")];
            let request = wire::request(&url, "GET", PATH, &token, "");
            let _ = timeout(Duration::from_millis(300), request).await;
        });
    }
    gone.join_all().await;
    assert_eq!(served.store.most_durable_reads(), 1);

    // Nobody else has a turn until the load has ended. The claim of the read has happened.
    let late = served.read_fenced("3").await;
    assert_eq!(late.problem(), "503 unavailable");
    let late = late.json();
    assert_eq!(late["outcome"], "unknown");
    let detail = late["detail"].as_str().unwrap();
    assert!(detail.contains("repeat the read with the same token"), "{detail}");
    let cut_off = r#"storage_server_cut_offs_total{reason="no-turn"} 1"#;
    let metrics = wire::request(&served.url, "GET", "/metrics", &[], "").await;
    assert!(metrics.text().contains(cut_off), "{}", metrics.text());
    gate.open();
    let read = served.read_fenced("3").await;
    assert_eq!((read.status, read.body.len()), (200, LARGE_BYTES));
}

/// Each of them has its share only, and all together leave a connection to everybody else.
#[tokio::test]
async fn clients_with_many_large_reads_leave_a_connection_to_others() {
    let guarded = Guarded::new();
    let mut bearers = Vec::new();
    for name in ["first", "second", "third"] {
        let all = ["--prefix", "", "--allow", "read,write,claim"];
        bearers.push(format!("Bearer {}", guarded.identity(name, &all).await));
    }
    let access = Access::from_file(guarded.auth_file()).await.unwrap();
    let served = Served::start_with(Config { access, ..Config::default() }).await;
    let gate = served.store.close_durable_reads();
    let mut reads = JoinSet::new();
    for bearer in bearers.iter().cycle().take(12) {
        let (url, bearer) = (served.url.clone(), bearer.clone());
        reads.spawn(async move {
            let headers = [("Authorization", bearer.as_str()), ("Fencing-Token", "3")];
            wire::request(&url, "GET", PATH, &headers, "").await.status
        });
    }
    let most = MemoryStore::CONNECTIONS - 1;
    let are_loading = async || Ok(served.store.most_durable_reads() >= most);
    until_async(Duration::from_secs(10), are_loading).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(served.store.most_durable_reads(), most);
    gate.open();
    assert_eq!(reads.join_all().await, [200; 12]);
}

on_empty_databases! {
    sixty_readers_of_one_state_hold_up_no_other,
    large_value_is_read_as_it_was_written,
}

async fn large_value_is_read_as_it_was_written(database: Database) {
    let server = database.serve(&[]).await;
    let value = "x".repeat(LARGE_BYTES);
    assert_eq!(offer(&server, "PUT", PATH, 1, &value).await.status, 201);
    assert_eq!(get(&server, PATH).await.text(), value);
    for token in [1, 2] {
        let read = offer(&server, "GET", PATH, token, "").await;
        assert_eq!((read.status, read.header("etag")), (200, Some("\"1\"")));
        assert_eq!(read.text(), value);
    }
}

const READERS: usize = 60;
const OTHERS: usize = 12;
const STATE_BYTES: usize = 16 << 20;
const JSON: (&str, &str) = ("Content-Type", "application/json");

async fn sixty_readers_of_one_state_hold_up_no_other(database: Database) {
    let server = database.serve(&["--max-value-bytes", "33554432"]).await;
    let url = server.url().to_owned();
    let send = async |method: &str, path: &str, body: &str| {
        timeout(Duration::from_secs(30), wire::request(&url, method, path, &[JSON], body)).await
    };
    let state = format!(r#"{{"version": 4, "padding": "{}"}}"#, "x".repeat(STATE_BYTES));
    assert_eq!(send("LOCK", "/v1/terraform/large", &lock_info(0)).await.unwrap().status, 200);
    let uploaded = send("POST", "/v1/terraform/large?ID=id-0", &state).await.unwrap();
    assert_eq!(uploaded.status, 201, "{uploaded:?}");
    let (mut readers, statuses) = (JoinSet::new(), Statuses::default());
    for _ in 0..READERS {
        let url = url.clone();
        readers.spawn(read_until_aborted(url, "/v1/terraform/large", statuses.clone()));
    }
    sleep(Duration::from_secs(1)).await;
    let mut others = JoinSet::new();
    for other in 1..=OTHERS {
        let (url, info) = (url.clone(), lock_info(other));
        others.spawn(async move {
            let path = format!("/v1/terraform/other-{other}");
            let mut statuses = Vec::new();
            for (method, path) in
                [("LOCK", &path), ("POST", &format!("{path}?ID=id-{other}")), ("GET", &path)]
            {
                let body = match method {
                    "LOCK" => info.as_str(),
                    "POST" => r#"{"version": 4}"#,
                    _ => "",
                };
                statuses.push(wire::request(&url, method, path, &[JSON], body).await.status);
            }
            statuses
        });
    }
    for statuses in others.join_all().await {
        assert_eq!(statuses, [200, 201, 200]);
    }
    until_some_have_read(&statuses).await;
    readers.shutdown().await;
}

type Statuses = Arc<Mutex<Vec<u16>>>;

/// Reads again and again, and notes the statuses.
async fn read_until_aborted(url: String, path: &str, statuses: Statuses) {
    loop {
        let status = wire::request(&url, "GET", path, &[], "").await.status;
        statuses.lock().unwrap().push(status);
        // As `Retry-After` says.
        let pause = if status == 503 { 1000 } else { 20 };
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Waits until some readers are served, too: as many as there is memory for.
async fn until_some_have_read(statuses: &Statuses) {
    let have_read = async || {
        let statuses = statuses.lock().unwrap();
        assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
        Ok(statuses.iter().filter(|status| **status == 200).count() >= 5)
    };
    until_async(Duration::from_secs(30), have_read).await.unwrap();
}

fn lock_info(id: usize) -> String {
    format!(r#"{{"ID": "id-{id}", "Operation": "OperationTypeApply"}}"#)
}
