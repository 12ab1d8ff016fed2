//! An operator's changes of object storage.

use std::{error::Error, ops::Range};

use async_trait::async_trait;
use fence::{
    Fence, ResourceName, Token,
    object_store::{Register, RegisterError, Registers, Replaced, Snapshot},
};
use tokio::time::timeout;

use super::{
    ANSWER_TIMEOUT,
    bucket::Bucket,
    record::{Record, ValueAttributes},
};
use crate::{
    row::Row,
    store::{
        error::{OpenError, no_answer, object_storage_failed},
        maintenance::{Counted, Maintenance, StoredRow, Unreadable},
    },
};

const NO_SUCH_CHANGE: &str =
    "object storage has neither a common fence nor a list that could be deleted";

/// A client for an operator's commands.
pub(in crate::store) struct ObjectStorageMaintenance(Registers);

impl ObjectStorageMaintenance {
    pub(in crate::store) fn open(url: &str) -> Result<Self, OpenError> {
        Ok(Self::new(Bucket::from_url(url)?.registers()))
    }

    pub(super) fn new(registers: Registers) -> Self {
        Self(registers)
    }
}

/// Reads a register.
async fn read(register: &mut Register) -> Result<Snapshot, sqlx::Error> {
    match timeout(ANSWER_TIMEOUT, register.snapshot()).await {
        Ok(answer) => answer.map_err(object_storage_failed),
        Err(_) => Err(no_answer(ANSWER_TIMEOUT)),
    }
}

#[async_trait]
impl Maintenance for ObjectStorageMaintenance {
    async fn stored(&mut self, resource: &ResourceName) -> Result<Option<StoredRow>, sqlx::Error> {
        let snapshot = read(&mut self.0.register(resource)).await?;
        let record = Record::decode(&snapshot).map_err(object_storage_failed)?;
        Ok((snapshot.version() > 0).then(|| stored_row(&record)))
    }

    /// A register is readable as a whole or not at all, so nothing is forgotten.
    async fn set_fence(
        &mut self,
        resource: &ResourceName,
        before: Option<&StoredRow>,
        fence: &Fence,
        _forget: Unreadable,
    ) -> Result<bool, sqlx::Error> {
        let mut register = self.0.register(resource);
        let snapshot = read(&mut register).await?;
        let record = Record::decode(&snapshot).map_err(object_storage_failed)?;
        let expected = before.map(|before| (before.token, &*before.holder));
        let found = (snapshot.version() > 0).then(|| {
            let fence = snapshot.fence();
            let holder = fence.map_or("", |fence| fence.holder.as_str());
            (fence.map(|fence| fence.token.as_i64()), holder.as_bytes())
        });
        if found != expected {
            return Ok(false);
        }
        let replacing = register.replace(&snapshot, record.with_fence(fence.clone()));
        let reason = match timeout(ANSWER_TIMEOUT, replacing).await {
            Ok(Ok(Replaced::Applied { .. })) => return Ok(true),
            Ok(Ok(Replaced::Overtaken { .. })) => return Ok(false),
            Ok(Ok(Replaced::Unknown(unknown))) => {
                // Its own text is for clients of a lock.
                let source = unknown.source().expect("the store has failed");
                source.to_string()
            }
            // Nothing was changed, and nothing will be.
            Ok(Err(
                error @ (RegisterError::Store { .. } | RegisterError::NoConditionalWrites { .. }),
            )) => {
                return Err(object_storage_failed(error));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) if !register.is_in_doubt() => return Err(no_answer(ANSWER_TIMEOUT)),
            Err(_) => no_answer(ANSWER_TIMEOUT).to_string(),
        };
        Err(object_storage_failed(format!(
            "{reason}. It is not known whether the fence was set: look with `storage-server fence show \
             {resource}`"
        )))
    }

    /// Each resource is changed by itself, so no other object can bind all of them.
    async fn common_fence(&mut self) -> Result<Option<Token>, sqlx::Error> {
        Ok(None)
    }

    async fn set_common_fence(
        &mut self,
        _before: Option<Token>,
        _common_fence: Token,
    ) -> Result<bool, sqlx::Error> {
        Err(object_storage_failed(NO_SUCH_CHANGE))
    }

    async fn count(&mut self, _names: &Range<String>) -> Result<Counted, sqlx::Error> {
        Err(object_storage_failed(NO_SUCH_CHANGE))
    }

    async fn delete(&mut self, _names: &Range<String>, _limit: i64) -> Result<u64, sqlx::Error> {
        Err(object_storage_failed(NO_SUCH_CHANGE))
    }
}

fn stored_row(record: &Record<'_>) -> StoredRow {
    let Row { fence, version, answers, .. } = record.row(None);
    let described = record.described();
    let written_with = described.and_then(ValueAttributes::written_with);
    let holder = |fence: &Option<Fence>| {
        fence.as_ref().map(|fence| fence.holder.as_str().as_bytes().to_vec()).unwrap_or_default()
    };
    StoredRow {
        token: fence.as_ref().map(|fence| fence.token.as_i64()),
        holder: holder(&fence),
        version: version as i64,
        size: described.map(|described| described.bytes as i64),
        value_token: written_with.as_ref().map(|fence| fence.token.as_i64()),
        value_holder: Some(holder(&written_with)),
        answers: (!answers.is_empty()).then(|| answers.to_string()),
    }
}
