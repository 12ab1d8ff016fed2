//! Reads of registers and their values, and how long they may take.

use std::time::Duration;

use fence::{
    ResourceName,
    object_store::{Register, RegisterError, Snapshot},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{handles::Handle, record::Record};
use crate::{
    row::Row,
    store::{
        Wanted,
        error::{
            ANSWER_TIMEOUT, ReadError, Unreachable, UnreadableRow, no_answer, object_storage_failed,
        },
    },
};

/// The slowest transfer of a large value, in bytes each second.
const SLOWEST_TRANSFER: u64 = 1 << 20;
/// How often a value is read again that was replaced meanwhile.
const ATTEMPTS: usize = 64;
/// How many reads that claim nothing may read registers at once.
pub(super) const REGISTERS: usize = 32;
/// How many bytes of large values they may read at once.
const VALUE_BYTES: u32 = 64 << 20;
/// How many lists may be made at once. Each reads the names of all resources.
pub(super) const LISTS: usize = 2;

/// How long the transfer of a value may take, with the change of its register.
pub(super) fn transfer_time(bytes: u64) -> Duration {
    ANSWER_TIMEOUT + Duration::from_secs(bytes / SLOWEST_TRANSFER)
}

/// The places of reads that change nothing. Without a limit, many clients could have the server load more
/// than its memory holds: a value of at most 64 KiB takes memory for answers only once it was loaded.
#[derive(Debug)]
pub(super) struct Places {
    registers: Semaphore,
    value_bytes: Semaphore,
    lists: Semaphore,
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            registers: Semaphore::new(REGISTERS),
            value_bytes: Semaphore::new(VALUE_BYTES as usize),
            lists: Semaphore::new(LISTS),
        }
    }

    async fn of_register(&self) -> SemaphorePermit<'_> {
        self.registers.acquire().await.expect("it is never closed")
    }

    async fn of_value(&self, bytes: u64) -> SemaphorePermit<'_> {
        // The largest one goes alone.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(VALUE_BYTES);
        self.value_bytes.acquire_many(bytes).await.expect("it is never closed")
    }

    pub(super) async fn of_list(&self) -> SemaphorePermit<'_> {
        self.lists.acquire().await.expect("it is never closed")
    }
}

/// Reads a register for a change, and its row.
pub(super) async fn read_for_change(
    handle: &mut Handle,
    wanted: Wanted<'_>,
) -> Result<Row, ReadError> {
    let (snapshot, row) = read(&mut handle.register, wanted, None).await?;
    handle.note_read(snapshot);
    Ok(row)
}

/// Reads a register and as much of its value as is wanted, once there are places for both.
pub(super) async fn read(
    register: &mut Register,
    Wanted { resource, value }: Wanted<'_>,
    places: Option<&Places>,
) -> Result<(Snapshot, Row), ReadError> {
    for _ in 0..ATTEMPTS {
        // 1. Read the register, which says how large the value is.
        let snapshot = in_time(ANSWER_TIMEOUT, resource, async {
            let _place = match places {
                Some(places) => Some(places.of_register().await),
                None => None,
            };
            register.snapshot().await
        });
        let snapshot = snapshot.await?;
        let record = decode(&snapshot, resource)?;
        let Some(bytes) = record.wanted_bytes(value) else {
            let row = record.row(None);
            return Ok((snapshot, row));
        };

        // 2. Read the value, for as long as its size may take.
        let _place = match places {
            Some(places) => {
                let place = timeout(ANSWER_TIMEOUT, places.of_value(bytes)).await;
                Some(place.map_err(|_| Unreachable::from(no_answer(ANSWER_TIMEOUT)))?)
            }
            None => None,
        };
        let read = in_time(transfer_time(bytes), resource, register.value(&snapshot)).await?;
        if read.is_some() {
            let row = record.row(read);
            return Ok((snapshot, row));
        }
        // It was replaced meanwhile.
    }
    let contended = RegisterError::Contended { resource: resource.clone() };
    Err(read_error(resource, contended))
}

/// Decodes a register.
pub(super) fn decode<'a>(
    snapshot: &'a Snapshot,
    resource: &ResourceName,
) -> Result<Record<'a>, UnreadableRow> {
    Record::decode(snapshot).map_err(|reason| UnreadableRow::new(resource.as_str(), reason))
}

async fn in_time<T>(
    limit: Duration,
    resource: &ResourceName,
    answer: impl Future<Output = Result<T, RegisterError>>,
) -> Result<T, ReadError> {
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error| read_error(resource, error)),
        Err(_) => Err(Unreachable::from(no_answer(limit)).into()),
    }
}

pub(super) fn read_error(resource: &ResourceName, error: RegisterError) -> ReadError {
    match error {
        RegisterError::Lost { .. } | RegisterError::Malformed { .. } => {
            UnreadableRow::new(resource.as_str(), error).into()
        }
        error => Unreachable::from(object_storage_failed(error)).into(),
    }
}
