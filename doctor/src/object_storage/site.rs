//! Where the checks work: a folder of a bucket for this run only.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context;
use fence::{Holder, object_store::Failure};
use futures_util::{StreamExt, TryStreamExt};
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, path::Path};
use tokio::time::sleep;

use super::wire::Wire;

/// How often a write is sent that the store rejects because there were too many before.
const SENDS: usize = 4;
/// How long to wait before each repetition.
const THROTTLED: Duration = Duration::from_millis(1100);

/// Makes a client of the store, with connections of its own. Its requests go through the wire. The client repeats
/// a request by itself as often as the number says.
pub type Clients = Box<dyn Fn(Wire, usize) -> anyhow::Result<Arc<dyn ObjectStore>> + Send + Sync>;

/// A folder of a bucket, for one run only.
pub struct Site {
    clients: Clients,
    address: Option<String>,
    pub(super) folder: Path,
    pub(super) store: Arc<dyn ObjectStore>,
    /// What `store` sends and receives.
    wire: Wire,
}

impl Site {
    /// Opens the bucket. The folder of the run will be in `parent`. Without an address, it is Amazon's.
    ///
    /// # Errors
    /// If it can't be listed.
    pub async fn open(
        clients: Clients,
        address: Option<String>,
        parent: &Path,
    ) -> anyhow::Result<Self> {
        let run = Holder::random().as_str()[..8].to_owned();
        let folder = parent.clone().join(format!("fenced_doctor_{run}"));
        let wire = Wire::default();
        let store = clients(wire.clone(), 0)?;
        store.list_with_delimiter(Some(&folder)).await.context("can't list the bucket")?;
        Ok(Self { clients, address, folder, store, wire })
    }

    /// Returns the name by which the store calls itself, and its address.
    pub(super) fn name(&self) -> String {
        match (self.wire.server(), self.address.as_deref()) {
            (Some(server), Some(address)) => format!("{server} at {address}"),
            (Some(server), None) => server,
            (None, address) => address.unwrap_or("S3").to_owned(),
        }
    }

    pub(super) fn path(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    /// Makes a client with connections of its own, which repeats no request by itself.
    pub(super) fn another_client(&self) -> anyhow::Result<Arc<dyn ObjectStore>> {
        (self.clients)(Wire::default(), 0)
    }

    /// Makes a client that repeats a request once.
    pub(super) fn repeating_client(&self, wire: &Wire) -> anyhow::Result<Arc<dyn ObjectStore>> {
        (self.clients)(wire.clone(), 1)
    }

    pub(super) async fn read(&self, path: &Path) -> anyhow::Result<String> {
        let bytes = self.store.get(path).await?.bytes().await?;
        Ok(String::from_utf8(bytes.to_vec())?)
    }

    /// Removes all objects of this run.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let objects = self.store.list(Some(&self.folder)).map_ok(|object| object.location).boxed();
        let deleted = self.store.delete_stream(objects).try_collect::<Vec<_>>().await;
        deleted.with_context(|| format!("can't delete the objects in {}", self.folder))?;
        Ok(())
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Writes an object. Some stores take one write a second for each key, so this waits as long as they call for.
pub(super) async fn put(
    store: &dyn ObjectStore,
    path: &Path,
    content: &str,
    mode: PutMode,
) -> Result<PutResult, Error> {
    let mut sends = 0;
    loop {
        let put = store.put_opts(path, content.to_owned().into(), mode.clone().into()).await;
        sends += 1;
        match put {
            Err(error) if Failure::from_error(&error).is_throttled() && sends < SENDS => {
                sleep(THROTTLED).await;
            }
            put => return put,
        }
    }
}

/// Whether an error says that a condition does not hold.
pub(super) fn is_rejection(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::AlreadyExists { .. })
}
