//! Reads that send no value load none.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fence::ResourceName;
use storage_server::{
    ApplyError, Change, Config, Content, Decide, Described, Listing, Page, ReadError, Row, Store,
    StoredValue, Unreachable, UnreadableRow, Value, Wanted, WantedValue, serve,
};
use tokio::{net::TcpListener, sync::oneshot};

use crate::wire::{self, Answer};

const SMALL_BYTES: usize = 64 << 10;
const VALUE_BYTES: usize = 1 << 20;

/// A store in which each resource has the same large value. It notes what reads want.
#[derive(Default)]
struct LargeValues {
    wanted: Mutex<Vec<WantedValue>>,
}

impl LargeValues {
    fn take_wanted(&self) -> Vec<WantedValue> {
        std::mem::take(&mut self.wanted.lock().unwrap())
    }
}

#[async_trait]
impl Store for LargeValues {
    fn database(&self) -> &str {
        "large values"
    }

    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        let mut rows = Vec::new();
        for wanted in wanted {
            rows.push(Ok(self.read(*wanted).await.unwrap()));
        }
        Ok(rows)
    }

    async fn read(&self, Wanted { value, .. }: Wanted<'_>) -> Result<Row, ReadError> {
        self.wanted.lock().unwrap().push(value);
        let content_type = "text/plain".to_owned();
        let stored = match value {
            WantedValue::AtMost(most) if most >= VALUE_BYTES => {
                let content = Content { content_type, bytes: vec![b'x'; VALUE_BYTES].into() };
                StoredValue::Present(Value { content, written_with: None })
            }
            _ => StoredValue::NotLoaded(Described {
                content_type: Some(content_type),
                size: VALUE_BYTES as u64,
                written_with: None,
            }),
        };
        Ok(Row { version: 7, value: stored, ..Row::default() })
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        Ok(vec![true; changes.len()])
    }

    async fn apply_under_locks(
        &self,
        _wanted: &[Wanted<'_>],
        _decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        unreachable!("nothing is blocked")
    }

    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        Ok(vec![false; resources.len()])
    }

    fn connection_epoch(&self) -> u64 {
        0
    }

    async fn list(&self, _page: &Page) -> Result<Listing, Unreachable> {
        unreachable!("nothing is listed")
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        Ok(())
    }

    async fn close(&self) {}
}

struct Served {
    store: Arc<LargeValues>,
    url: String,
    _stop: oneshot::Sender<()>,
}

impl Served {
    async fn start(config: Config) -> Self {
        let store = Arc::new(LargeValues::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        tokio::spawn(serve(listener, store.clone(), config, stopped));
        Self { store, url, _stop: stop }
    }

    async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        wire::request(&self.url, method, path, headers, "").await
    }
}

#[tokio::test]
async fn head_and_known_version_load_no_value() {
    let served = Served::start(Config::default()).await;
    let path = "/v1/resources/r";
    let head = served.request("HEAD", path, &[]).await;
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-length"), Some("1048576"));
    assert_eq!(head.header("content-type"), Some("text/plain"));
    assert_eq!(head.header("etag"), Some("\"7\""));
    assert_eq!(served.store.take_wanted(), [WantedValue::AtMost(SMALL_BYTES)]);

    let known = served.request("GET", path, &[("If-None-Match", "\"7\"")]).await;
    assert_eq!((known.status, known.header("content-length")), (304, None));
    assert_eq!(known.header("etag"), Some("\"7\""));
    assert_eq!(served.store.take_wanted(), [WantedValue::AtMost(SMALL_BYTES)]);

    // The control: what is sent is loaded.
    let sent = served.request("GET", path, &[("If-None-Match", "\"6\"")]).await;
    assert_eq!((sent.status, sent.body.len()), (200, VALUE_BYTES));
    let (small, large) = (WantedValue::AtMost(SMALL_BYTES), WantedValue::AtMost(VALUE_BYTES));
    assert_eq!(served.store.take_wanted(), [small, large]);
}
