//! Changes of registers.

use std::mem;

use fence::object_store::{Leftover, RegisterError, Replaced};
use tokio::time::timeout;

use super::{
    ObjectStorage,
    handles::Handle,
    reading::{decode, read_for_change, transfer_time},
};
use crate::{
    row::StoredValue,
    store::{
        Change, Wanted, WantedValue,
        error::{
            ApplyError, ReadError, Unreachable, UnreadableRow, no_answer, object_storage_failed,
        },
    },
};

impl ObjectStorage {
    /// Makes a change whose resource has this handle, within a time, and returns whether it was made. Then
    /// keeps the handle.
    pub(super) async fn change_in_time(
        &self,
        mut handle: Handle,
        change: &Change<'_>,
    ) -> Result<bool, ApplyError> {
        let bytes = match &change.after.value {
            StoredValue::Present(value) => value.content.bytes.len(),
            StoredValue::Absent | StoredValue::Unknown | StoredValue::NotLoaded(_) => 0,
        };
        let limit = transfer_time(bytes as u64);
        let mut is_sending = false;
        let changed = timeout(limit, self.change(&mut handle, change, &mut is_sending)).await;
        let changed = changed.unwrap_or_else(|_| {
            let error = no_answer(limit);
            // A read, the upload of a value and a pause change nothing.
            match is_sending && handle.register.is_in_doubt() {
                true => Err(ApplyError::Unknown(error)),
                false => Err(ApplyError::Unchanged(error)),
            }
        });
        if !matches!(changed, Ok(_) | Err(ApplyError::Unreadable(_))) {
            // What it has seen of the register stays: just now, the register may have been lost.
            handle.forget_snapshots();
        }
        self.handles.keep(change.resource, handle);
        changed
    }

    /// Sets `is_sending` before it sends anything that changes the register.
    async fn change(
        &self,
        handle: &mut Handle,
        change: &Change<'_>,
        is_sending: &mut bool,
    ) -> Result<bool, ApplyError> {
        // 1. Take the register as this server has left it, or read it. The condition of step 3 proves
        //    that it still is so.
        let description = Wanted { resource: change.resource, value: WantedValue::Description };
        if handle.probable().is_none() {
            read_for_change(handle, description).await.map_err(unchanged)?;
        }
        let Some(snapshot) = handle.probable().cloned() else {
            // This server was paused since it has read.
            return Ok(false);
        };

        // 2. Compare it with the row that was decided on, which may be a guess.
        let record = decode(&snapshot, change.resource)?;
        if !record.is_as(change.before) {
            return Ok(false);
        }

        // 3. Replace it.
        let replacement = record.replacement(change);
        *is_sending = true;
        match handle.register.replace(&snapshot, replacement).await {
            Ok(Replaced::Applied { now, leftover }) => {
                handle.note_change(now);
                self.clean_up(change, handle, leftover);
                Ok(true)
            }
            Ok(Replaced::Overtaken { leftover }) => {
                handle.forget_snapshots();
                self.clean_up(change, handle, leftover);
                Ok(false)
            }
            Ok(Replaced::Unknown(unknown)) => {
                Err(ApplyError::Unknown(object_storage_failed(unknown)))
            }
            // Nothing was sent but a large value, to which nothing refers, or the store has rejected it each time.
            Err(
                error @ (RegisterError::Store { .. } | RegisterError::NoConditionalWrites { .. }),
            ) => Err(ApplyError::Unchanged(object_storage_failed(error))),
            // The change may have been made before the register was lost.
            Err(error @ RegisterError::Lost { .. }) => {
                Err(ApplyError::Lost(UnreadableRow::new(change.resource.as_str(), error)))
            }
            Err(error) => Err(ApplyError::Unknown(object_storage_failed(error))),
        }
    }

    /// Deletes a large value that nothing refers to any more. At the first one of a resource, also those
    /// that a crash has left. Those of the present version stay: to delete them, the register would have to
    /// be changed, and the next write would be overtaken.
    fn clean_up(&self, change: &Change<'_>, handle: &mut Handle, leftover: Option<Leftover>) {
        let Some(leftover) = leftover else { return };
        let is_first = !mem::replace(&mut handle.is_collected, true);
        let mut register = self.handles.new_register(change.resource);
        let resource = change.resource.clone();
        self.cleanup.spawn(async move {
            let deleted = leftover.delete().await.map_err(object_storage_failed);
            let collected = match deleted {
                Ok(()) if is_first => {
                    register.collect_earlier().await.map(drop).map_err(object_storage_failed)
                }
                other => other,
            };
            if let Err(error) = collected {
                tracing::warn!(%resource, "a large value that was replaced still takes space: {error}");
            }
        });
    }
}

fn unchanged(error: ReadError) -> ApplyError {
    match error {
        ReadError::Unreadable(unreadable) => unreadable.into(),
        ReadError::Unreachable(Unreachable(error)) => ApplyError::Unchanged(error),
    }
}
