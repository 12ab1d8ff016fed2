//! Resources in object storage: one register for each, in a folder of a bucket.
//!
//! A register is an object that has the whole row, and is replaced on the condition that it still is as
//! it was read (`fence::object_store`). So each resource is changed by itself, and any number of servers
//! may share a bucket.

mod bucket;
pub(super) mod doctor;
mod handles;
pub(super) mod maintenance;
mod record;

use std::{collections::BTreeSet, mem, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use fence::{
    ResourceName,
    object_store::{Leftover, Register, RegisterError, Registers, Replaced, Snapshot},
};
use futures_util::{StreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, path::Path};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub(crate) use self::bucket::ENDPOINT;
use self::{
    bucket::Bucket,
    doctor::{find_unmet_condition, scratch},
    handles::{Handle, Handles},
    record::Record,
};
use super::{
    Change, Decide, Store, Wanted, WantedValue, changes_between,
    error::{
        ANSWER_TIMEOUT, ApplyError, OpenError, ReadError, Unreachable, UnreadableRow, no_answer,
        object_storage_failed,
    },
    list::{Listed, Page},
    open::MissingFile,
};
use crate::row::{Row, StoredValue};

/// How long a list may take: it reads the names of all resources, and each register of the page.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many registers of a page are read at once.
const CONCURRENT_READS: usize = 16;
/// The slowest upload of a large value, in bytes each second.
const SLOWEST_UPLOAD: usize = 1 << 20;
const ONE_AT_A_TIME: &str = "object storage changes one resource at a time";

/// Resources in object storage, which any number of servers may share.
#[derive(Debug)]
pub(super) struct ObjectStorage {
    address: String,
    client: Arc<dyn ObjectStore>,
    /// The object that a probe writes.
    probe: Path,
    registers: Registers,
    handles: Handles,
    /// Deletes large values that nothing refers to any more.
    cleanup: TaskTracker,
}

impl ObjectStorage {
    /// Checks that the bucket can be written on conditions, and writes nothing that stays.
    pub(super) async fn open(url: &str, missing_file: MissingFile) -> Result<Self, OpenError> {
        let Bucket { address, client, folder } = Bucket::from_url(url)?;
        let refuse = |reason: String| OpenError::Unsafe { database: address.clone(), reason };
        let failed = |source| OpenError::Connect { database: address.clone(), source };
        let unmet = within(ANSWER_TIMEOUT, find_unmet_condition(&*client, &folder)).await;
        if let Some(unmet) = unmet.map_err(failed)? {
            return Err(refuse(unmet));
        }
        let first = async { client.list(Some(&folder)).next().await.transpose() };
        let first = within(ANSWER_TIMEOUT, first).await.map_err(failed)?;
        // Scratch is the last in the order of a list.
        let is_resource = |path: &Path| !path.prefix_matches(&scratch(&folder));
        let is_empty = !first.is_some_and(|object| is_resource(&object.location));
        if is_empty && missing_file == MissingFile::Refuse {
            return Err(refuse("its folder is empty, so it knows no fence".to_owned()));
        }
        if is_empty {
            tracing::warn!(database = address, "the folder is empty: it has no fences");
        }
        let registers = Registers::new(client.clone(), folder.clone());
        let handles = Handles::new(registers.clone());
        let probe = scratch(&folder).join("probe");
        Ok(Self { address, client, probe, registers, handles, cleanup: TaskTracker::new() })
    }

    /// Makes a change whose resource has this handle, and returns whether it was made.
    async fn change(&self, handle: &mut Handle, change: &Change<'_>) -> Result<bool, ApplyError> {
        // 1. Take the register as this server has left it, or read it. The condition of step 3 proves
        //    that it still is so.
        let presence = Wanted { resource: change.resource, value: WantedValue::Presence };
        if handle.probable().is_none() {
            read_for_change(handle, presence).await.map_err(unchanged)?;
        }
        let Some(snapshot) = handle.probable().cloned() else {
            // This server was paused since it has read.
            return Ok(false);
        };

        // 2. Compare it with the row that was decided on, which may be a guess.
        let record =
            Record::decode(&snapshot).map_err(|reason| unreadable(change.resource, reason))?;
        if !record.is_as(change.before) {
            return Ok(false);
        }

        // 3. Replace it.
        let replacement = record.replacement(change);
        match handle.register.replace(&snapshot, replacement).await {
            Ok(Replaced::Applied { now, leftover }) => {
                handle.note_change(now);
                self.clean_up(change, handle, leftover);
                Ok(true)
            }
            Ok(Replaced::Overtaken { leftover }) => {
                handle.note_rival();
                self.clean_up(change, handle, leftover);
                Ok(false)
            }
            Ok(Replaced::Unknown(unknown)) => {
                Err(ApplyError::Unknown(object_storage_failed(unknown)))
            }
            // Nothing was sent but a large value, to which nothing refers.
            Err(error @ RegisterError::Store { .. }) => {
                Err(ApplyError::Unchanged(object_storage_failed(error)))
            }
            // The change may have been made before the register was lost.
            Err(error) => Err(ApplyError::Unknown(object_storage_failed(error))),
        }
    }

    /// Makes a change within a time. What the handle knows is forgotten if the outcome is unknown.
    async fn change_in_time(
        &self,
        mut handle: Handle,
        change: &Change<'_>,
    ) -> Result<bool, ApplyError> {
        let bytes = match &change.after.value {
            StoredValue::Present(value) => value.content.bytes.len(),
            StoredValue::Absent | StoredValue::NotLoaded => 0,
        };
        let limit = ANSWER_TIMEOUT + Duration::from_secs((bytes / SLOWEST_UPLOAD) as u64);
        let changed = timeout(limit, self.change(&mut handle, change)).await;
        let changed = changed.unwrap_or_else(|_| Err(ApplyError::Unknown(no_answer())));
        if matches!(changed, Ok(_) | Err(ApplyError::Unreadable(_))) {
            self.handles.keep(change.resource, handle);
        }
        changed
    }

    /// Deletes a large value that nothing refers to any more. At the first one of a resource, also those
    /// that a crash has left.
    fn clean_up(&self, change: &Change<'_>, handle: &mut Handle, leftover: Option<Leftover>) {
        let Some(leftover) = leftover else { return };
        let is_first = !mem::replace(&mut handle.is_collected, true);
        let mut register = self.registers.register(change.resource);
        let resource = change.resource.clone();
        self.cleanup.spawn(async move {
            let deleted = leftover.delete().await.map_err(object_storage_failed);
            let collected = match deleted {
                Ok(()) if is_first => {
                    register.collect().await.map(drop).map_err(object_storage_failed)
                }
                other => other,
            };
            if let Err(error) = collected {
                tracing::warn!(%resource, "a large value that was replaced still takes space: {error}");
            }
        });
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
            let read = timeout(ANSWER_TIMEOUT, read_for_change(&mut handle, *wanted)).await;
            self.handles.keep(wanted.resource, handle);
            rows.push(match read {
                Ok(Ok(row)) => Ok(row),
                Ok(Err(ReadError::Unreadable(unreadable))) => Err(unreadable),
                Ok(Err(ReadError::Unreachable(error))) => return Err(error),
                Err(_) => return Err(no_answer().into()),
            });
        }
        Ok(rows)
    }

    async fn read(&self, Wanted { resource, value }: Wanted<'_>) -> Result<Row, ReadError> {
        let mut register = self.handles.new_register(resource);
        let read = timeout(ANSWER_TIMEOUT, read(&mut register, resource, value)).await;
        let (_, row) = read.map_err(|_| Unreachable::from(no_answer()))??;
        Ok(row)
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

    /// Object storage has no locks. The row is read, and replaced if it still is as it was read.
    async fn apply_under_locks(
        &self,
        wanted: &[Wanted<'_>],
        decide: Decide<'_>,
    ) -> Result<bool, ApplyError> {
        let [wanted] = wanted else {
            return Err(ApplyError::Unchanged(object_storage_failed(ONE_AT_A_TIME)));
        };
        let mut handle = self.handles.take(wanted.resource);
        let read = timeout(ANSWER_TIMEOUT, read_for_change(&mut handle, *wanted)).await;
        let read = read.unwrap_or_else(|_| Err(Unreachable::from(no_answer()).into()));
        let before = match read {
            Ok(before) => [before],
            Err(error) => {
                self.handles.keep(wanted.resource, handle);
                return Err(unchanged(error));
            }
        };
        let after = decide(&before);
        match &changes_between(&[*wanted], &before, &after)[..] {
            [change] => self.change_in_time(handle, change).await,
            _ => {
                self.handles.keep(wanted.resource, handle);
                Ok(true)
            }
        }
    }

    /// Object storage has no locks.
    async fn locked(&self, resources: &[&ResourceName]) -> Result<Vec<bool>, Unreachable> {
        Ok(vec![false; resources.len()])
    }

    /// A handle sees by itself that its register was lost.
    fn connection_epoch(&self) -> u64 {
        0
    }

    /// Reads the names of all resources, because their objects are not in the order of the names. Then reads
    /// the registers of the page. They are of one moment each.
    async fn list(&self, page: &Page) -> Result<Vec<Listed>, Unreachable> {
        let listed = timeout(LIST_TIMEOUT, async {
            let names = self.registers.resources().await.map_err(object_storage_failed)?;
            let range = page.range();
            let range = &*range.start..&*range.end;
            let is_in_page = |name: &ResourceName| range.contains(&name.as_str());
            let names: BTreeSet<_> = names.into_iter().filter(is_in_page).collect();
            let mut listed = Vec::new();
            let mut found = stream::iter(names)
                .map(|name| async move { self.listed(&name).await })
                .buffered(CONCURRENT_READS);
            while listed.len() < page.limit as usize
                && let Some(found) = found.next().await
            {
                match found {
                    Ok(found) => listed.extend(found),
                    Err(ReadError::Unreadable(error)) => {
                        tracing::error!("left out of a list: {error}");
                    }
                    Err(ReadError::Unreachable(error)) => return Err(error),
                }
            }
            Ok(listed)
        });
        listed.await.unwrap_or_else(|_| Err(no_answer().into()))
    }

    async fn probe(&self) -> Result<(), Unreachable> {
        let written = self.client.put(&self.probe, PutPayload::new());
        within(ANSWER_TIMEOUT, written).await?;
        Ok(())
    }

    /// Waits until large values are deleted that nothing refers to any more.
    async fn close(&self) {
        self.cleanup.close();
        self.cleanup.wait().await;
    }
}

impl ObjectStorage {
    /// The resource as it is in a list, if it has a value.
    async fn listed(&self, resource: &ResourceName) -> Result<Option<Listed>, ReadError> {
        let mut register = self.handles.new_register(resource);
        let read = register.snapshot(|_| false).await;
        let (snapshot, _) = read.map_err(|error| read_error(resource, error))?;
        let record = Record::decode(&snapshot).map_err(|reason| unreadable(resource, reason))?;
        Ok(record.described().map(|described| Listed {
            resource: resource.clone(),
            token: described.written_with().map(|fence| fence.token),
            version: record.version(),
            size: described.bytes,
        }))
    }
}

/// Reads a register for a change, and its row.
async fn read_for_change(
    handle: &mut Handle,
    Wanted { resource, value }: Wanted<'_>,
) -> Result<Row, ReadError> {
    let (snapshot, row) = read(&mut handle.register, resource, value).await?;
    handle.note_read(snapshot);
    Ok(row)
}

/// Reads a register and as much of its value as is wanted.
async fn read(
    register: &mut Register,
    resource: &ResourceName,
    wanted: WantedValue,
) -> Result<(Snapshot, Row), ReadError> {
    let is_wanted =
        |snapshot: &Snapshot| Record::decode(snapshot).is_ok_and(|record| record.is_wanted(wanted));
    let read = register.snapshot(is_wanted).await;
    let (snapshot, value): (_, Option<Bytes>) =
        read.map_err(|error| read_error(resource, error))?;
    let record = Record::decode(&snapshot).map_err(|reason| unreadable(resource, reason))?;
    let row = record.row(value);
    Ok((snapshot, row))
}

fn read_error(resource: &ResourceName, error: RegisterError) -> ReadError {
    match error {
        RegisterError::Lost { .. } | RegisterError::Malformed { .. } => {
            unreadable(resource, error.to_string()).into()
        }
        error => Unreachable::from(object_storage_failed(error)).into(),
    }
}

fn unreadable(resource: &ResourceName, reason: String) -> UnreadableRow {
    UnreadableRow::new(resource.as_str(), reason)
}

fn unchanged(error: ReadError) -> ApplyError {
    match error {
        ReadError::Unreadable(unreadable) => unreadable.into(),
        ReadError::Unreachable(Unreachable(error)) => ApplyError::Unchanged(error),
    }
}

/// The answer to requests, unless it takes too long.
async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, object_store::Error>>,
) -> Result<T, sqlx::Error> {
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(object_storage_failed),
        Err(_) => Err(no_answer()),
    }
}
