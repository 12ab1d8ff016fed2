//! Resources in object storage: one register for each, in a folder of a bucket.
//!
//! A register is an object that has the whole row, and is replaced on the condition that it still is as
//! it was read (`fence::object_store`). So each resource is changed by itself, and any number of servers
//! may share a bucket.

mod bucket;
mod changing;
pub(super) mod doctor;
mod generations;
mod handles;
mod latest_states;
mod listing;
pub(super) mod maintenance;
mod reading;
mod record;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use fence::{Holder, object_store::Registers};
use futures_util::StreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, path::Path};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub(crate) use self::bucket::ENDPOINT;
use self::{
    bucket::Bucket,
    doctor::{find_unmet_condition, scratch},
    handles::Handles,
    reading::{LISTS, Places, REGISTERS, read, read_for_change},
};
use super::{
    Change, Decide, ReadsAtOnce, Store, Wanted,
    error::{
        ANSWER_TIMEOUT, ApplyError, OpenError, ReadError, Unreachable, UnreadableRow, no_answer,
        object_storage_failed,
    },
    list::{Listing, Page},
    open::MissingFile,
};
use crate::row::Row;

/// How long a server that ends waits until the probe's object is deleted.
const CLEARING_TIMEOUT: Duration = Duration::from_secs(1);
const ONE_AT_A_TIME: &str = "object storage changes one resource at a time";

/// Resources in object storage, which any number of servers may share.
#[derive(Debug)]
pub(super) struct ObjectStorage {
    address: String,
    client: Arc<dyn ObjectStore>,
    /// The object that a probe writes and reads.
    probe: Path,
    registers: Registers,
    handles: Handles,
    places: Places,
    /// Deletes large values that nothing refers to any more.
    cleanup: TaskTracker,
}

impl ObjectStorage {
    /// Checks that the bucket can be written on conditions, and writes nothing that stays.
    pub(super) async fn open(url: &str, missing_file: MissingFile) -> Result<Self, OpenError> {
        let bucket = Bucket::from_url(url)?;
        let Bucket { address, client, folder, .. } = &bucket;
        let reject = |reason: String| OpenError::Unsafe { database: address.clone(), reason };
        let failed = |source| OpenError::Connect { database: address.clone(), source };
        let unmet = within(ANSWER_TIMEOUT, find_unmet_condition(&**client, folder)).await;
        if let Some(unmet) = unmet.map_err(failed)? {
            return Err(reject(unmet));
        }
        let first = async { client.list(Some(folder)).next().await.transpose() };
        let first = within(ANSWER_TIMEOUT, first).await.map_err(failed)?;
        // Scratch is the last in the order of a list.
        let is_resource = |path: &Path| !path.prefix_matches(&scratch(folder));
        let is_empty = !first.is_some_and(|object| is_resource(&object.location));
        if is_empty && missing_file == MissingFile::Reject {
            return Err(reject("its folder is empty, so it knows no fence".to_owned()));
        }
        if is_empty {
            tracing::warn!(database = address, "the folder is empty: it has no fences");
        }
        Ok(Self::new(bucket))
    }

    fn new(bucket: Bucket) -> Self {
        let registers = bucket.registers();
        let Bucket { address, client, folder, .. } = bucket;
        let handles = Handles::new(registers.clone());
        // Of this server alone: some stores take one write a second for each key.
        let probe = scratch(&folder).join(format!("probe-{}", &Holder::random().as_str()[..8]));
        let (places, cleanup) = (Places::new(), TaskTracker::new());
        Self { address, client, probe, registers, handles, places, cleanup }
    }
}

#[async_trait]
impl Store for ObjectStorage {
    fn database(&self) -> &str {
        &self.address
    }

    fn has_transactions(&self) -> bool {
        false
    }

    /// The rows are of one moment each.
    async fn load(
        &self,
        wanted: &[Wanted<'_>],
    ) -> Result<Vec<Result<Row, UnreadableRow>>, Unreachable> {
        let mut rows = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let mut handle = self.handles.take(wanted.resource);
            let read = read_for_change(&mut handle, *wanted).await;
            self.handles.keep(wanted.resource, handle);
            rows.push(match read {
                Ok(row) => Ok(row),
                Err(ReadError::Unreadable(unreadable)) => Err(unreadable),
                Err(ReadError::Unreachable(error)) => return Err(error),
            });
        }
        Ok(rows)
    }

    /// All that object storage shows is durable. So these reads are those of [`read`](Store::read), and they
    /// share places.
    async fn read_durable(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        self.read(wanted).await
    }

    async fn read(&self, wanted: Wanted<'_>) -> Result<Row, ReadError> {
        let mut register = self.handles.new_register(wanted.resource);
        let read = read(&mut register, wanted, Some(&self.places)).await;
        self.handles.note_seen(wanted.resource, &register);
        let (_, row) = read?;
        Ok(row)
    }

    /// Both share the places of registers.
    fn reads_at_once(&self) -> ReadsAtOnce {
        ReadsAtOnce { visible: REGISTERS / 2, durable: REGISTERS / 2, lists: LISTS }
    }

    async fn apply(&self, changes: &[Change<'_>]) -> Result<Vec<bool>, ApplyError> {
        match changes {
            [] => Ok(Vec::new()),
            [change] => {
                let handle = self.handles.take(change.resource);
                Ok(vec![self.change_in_time(handle, change).await?])
            }
            _ => Err(ApplyError::Unchanged(object_storage_failed(ONE_AT_A_TIME))),
        }
    }

    /// Object storage has no locks.
    async fn apply_under_locks(
        &self,
        _wanted: &[Wanted<'_>],
        _decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        Err(ApplyError::Unchanged(object_storage_failed(ONE_AT_A_TIME)))
    }

    async fn list(&self, page: &Page) -> Result<Listing, Unreachable> {
        self.list_page(page).await
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        let written_and_read = async {
            self.client.put(&self.probe, PutPayload::new()).await?;
            self.client.get(&self.probe).await?.bytes().await
        };
        within(ANSWER_TIMEOUT, written_and_read).await?;
        Ok(())
    }

    /// Waits until large values are deleted that nothing refers to any more, and deletes the probe's object.
    async fn close(&self) {
        self.cleanup.close();
        self.cleanup.wait().await;
        // An empty object that stays does no harm.
        let _ = within(CLEARING_TIMEOUT, self.client.delete(&self.probe)).await;
    }
}

/// The answer to requests, unless it takes too long.
async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, object_store::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(object_storage_failed),
        Err(_) => Err(no_answer(limit)),
    }
}

#[cfg(test)]
mod tests;
