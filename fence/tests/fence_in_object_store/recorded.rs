//! A store that records every state of a register.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use fence::{Fence, Holder, Token};
use futures_util::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    memory::InMemory, path::Path,
};
use serde_json::Value;

/// A state that a register had.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) version: u64,
    pub(super) fence: Fence,
    /// The value, up to its first space. [`GONE`] if it is an object that does not exist.
    pub(super) value: Option<String>,
    /// The id of the write that made the state.
    pub(super) write_id: String,
}

pub(super) const GONE: &str = "gone";

/// A store in memory that records the states of registers, in the order in which they were stored.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorded {
    pub(super) store: Arc<InMemory>,
    states: Arc<Mutex<Vec<Entry>>>,
    requests: Arc<AtomicUsize>,
}

impl Recorded {
    pub(super) fn states(&self) -> Vec<Entry> {
        self.states.lock().unwrap().clone()
    }

    /// Returns how many objects were read and written.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    async fn record(&self, payload: PutPayload, location: &Path) {
        let (header, rest) = parts(&payload);
        let value = match &header["value"] {
            Value::String(none) if none == "none" => None,
            described if described["inline"].is_object() => Some(rest),
            described => {
                let name = described["object"]["name"].as_str().unwrap();
                let folder = location.to_string().replace("fence.register", "fence.values");
                match self.store.get(&Path::parse(format!("{folder}/{name}")).unwrap()).await {
                    Ok(object) => {
                        let bytes = object.bytes().await.unwrap().to_vec();
                        Some(String::from_utf8(bytes).unwrap())
                    }
                    Err(_) => Some(GONE.to_owned()),
                }
            }
        };
        let value = value.map(|value| value.split(' ').next().unwrap().to_owned());
        let token = Token::new(header["token"].as_u64().unwrap()).unwrap();
        let holder: Holder = header["holder"].as_str().unwrap().parse().unwrap();
        let version = header["version"].as_u64().unwrap();
        let write_id = header["write_id"].as_str().unwrap().to_owned();
        let entry = Entry { version, fence: Fence { token, holder }, value, write_id };
        self.states.lock().unwrap().push(entry);
    }
}

/// The first line of a register, and what follows it.
pub(super) fn parts(register: &PutPayload) -> (Value, String) {
    let text = register.iter().flat_map(|part| part.to_vec()).collect();
    let text = String::from_utf8(text).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    (serde_json::from_str(header).unwrap(), rest.to_owned())
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorded")
    }
}

#[async_trait]
impl ObjectStore for Recorded {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let put = self.store.put_opts(location, payload.clone(), options).await;
        if put.is_ok() && location.filename() == Some("fence.register") {
            self.record(payload, location).await;
        }
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}
