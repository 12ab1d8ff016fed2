//! Reads a register and its value.

use ::object_store::{Error, ObjectStoreExt, UpdateVersion};
use bytes::Bytes;

use super::{ATTEMPTS, Register, Snapshot};
use crate::object_store::{
    outcome::RegisterError,
    state::{State, Value},
};

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
        self.latest = Some((state.version, state.write_id.clone()));
        Ok(Snapshot::new(Some((state, condition))))
    }

    /// Reads the register, and its value if that is wanted. If the value is an object that was replaced
    /// and collected meanwhile, both are read again.
    pub(super) async fn load_with_value(
        &mut self,
        wants: impl Fn(&Snapshot) -> bool,
    ) -> Result<(Snapshot, Option<Bytes>), RegisterError> {
        let mut gone = None;
        for _ in 0..ATTEMPTS {
            let known = self.load().await?;
            if !wants(&known) {
                return Ok((known, None));
            }
            let Some(State { value: Value::Object(name), version, .. }) = known.state() else {
                let value = known.inline_value();
                return Ok((known, value));
            };
            if gone == Some(*version) {
                return Err(self.malformed(format!("its value, the object `{name}`, is gone")));
            }
            let read = async { self.store.get(&self.paths.value(name)).await?.bytes().await };
            match read.await {
                Ok(value) => return Ok((known, Some(value))),
                Err(Error::NotFound { .. }) => gone = Some(*version),
                Err(source) => return Err(self.store_failed(source)),
            }
        }
        Err(RegisterError::Contended { resource: self.resource.clone() })
    }

    fn check_not_lost(&self, found: Option<&State>) -> Result<(), RegisterError> {
        let Some((seen, write_id)) = &self.latest else {
            return Ok(());
        };
        match found {
            Some(state) if state.version > *seen => Ok(()),
            Some(state) if (state.version, &state.write_id) == (*seen, write_id) => Ok(()),
            _ => Err(RegisterError::Lost { resource: self.resource.clone(), seen: *seen }),
        }
    }

    pub(super) fn store_failed(&self, source: Error) -> RegisterError {
        RegisterError::Store { resource: self.resource.clone(), source }
    }

    pub(super) fn malformed(&self, reason: String) -> RegisterError {
        RegisterError::Malformed { resource: self.resource.clone(), reason }
    }
}
