//! Reads a register and its value.

use ::object_store::{Error, ObjectStoreExt, UpdateVersion};
use bytes::Bytes;

use super::{ATTEMPTS, LatestSeen, Register, Snapshot};
use crate::object_store::{outcome::RegisterError, state::State};

impl Register {
    /// Reads the register.
    pub(super) async fn load(&mut self) -> Result<Snapshot, RegisterError> {
        let answer = match self.store.get(&self.paths.register).await {
            Ok(answer) => answer,
            Err(Error::NotFound { .. }) => {
                self.check_not_lost(None)?;
                return Ok(Snapshot::new(None));
            }
            Err(source) => return Err(self.store_failed(source)),
        };
        let condition = UpdateVersion {
            e_tag: answer.meta.e_tag.clone(),
            version: answer.meta.version.clone(),
        };
        let bytes = answer.bytes().await.map_err(|source| self.store_failed(source))?;
        let state = State::decode(&bytes).map_err(|reason| self.malformed(reason))?;
        self.check_not_lost(Some(&state))?;
        self.note_seen(LatestSeen::from_state(&state));
        Ok(Snapshot::new(Some((state, condition))))
    }

    /// Reads the register and its value. If the value is an object that was replaced and collected
    /// meanwhile, reads both again.
    pub(super) async fn load_with_value(
        &mut self,
    ) -> Result<(Snapshot, Option<Bytes>), RegisterError> {
        for _ in 0..ATTEMPTS {
            let known = self.load().await?;
            let value = self.value(&known).await?;
            if value.is_some() || !known.has_value() {
                return Ok((known, value));
            }
        }
        Err(RegisterError::Contended { resource: self.resource.clone() })
    }

    /// Reads the value of a register that was read. `None` if it has none, or if the register was replaced
    /// since, and its former value deleted: then read the register again.
    ///
    /// # Errors
    /// [`RegisterError`], which says for each reason what to do.
    ///
    /// # Cancellation safety
    /// If this future is dropped, nothing has changed.
    pub async fn value(&mut self, read: &Snapshot) -> Result<Option<Bytes>, RegisterError> {
        let Some(name) = read.object() else { return Ok(read.inline_value()) };
        let object = async { self.store.get(&self.paths.value(name)).await?.bytes().await };
        match object.await {
            Ok(value) => Ok(Some(value)),
            Err(Error::NotFound { .. }) if self.load().await?.version() > read.version() => {
                Ok(None)
            }
            Err(Error::NotFound { .. }) => {
                Err(self.malformed(format!("its value, the object `{name}`, is gone")))
            }
            Err(source) => Err(self.store_failed(source)),
        }
    }

    fn check_not_lost(&self, found: Option<&State>) -> Result<(), RegisterError> {
        match &self.latest {
            Some(latest) if !latest.may_precede(found) => {
                let (resource, seen) = (self.resource.clone(), latest.version());
                Err(RegisterError::Lost { resource, seen })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn store_failed(&self, source: Error) -> RegisterError {
        RegisterError::Store { resource: self.resource.clone(), source }
    }

    pub(super) fn malformed(&self, reason: String) -> RegisterError {
        RegisterError::Malformed { resource: self.resource.clone(), reason }
    }
}
