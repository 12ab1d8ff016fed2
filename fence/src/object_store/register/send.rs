//! Replaces a register on the condition that it still is as it was read.

use ::object_store::{Error, PutOptions, PutPayload};

use super::{LatestSeen, Register, Snapshot};
use crate::object_store::{
    outcome::RegisterError,
    read_back::{ReadBack, read_back},
    state::State,
};

/// How often a state is sent while the register stays as it was read. The store's client has its own
/// retries, with pauses, within each.
const SENDS: usize = 4;

/// The outcome of a state that was sent.
pub(super) enum Sent {
    Applied,
    NeverLands,
    /// It may have been applied, or may still be.
    Unknown(Error),
}

impl Register {
    /// Sends the next state. Afterwards, the register is known again, unless the outcome is unknown.
    pub(super) async fn send(
        &mut self,
        known: &Snapshot,
        next: &State,
    ) -> Result<Sent, RegisterError> {
        // Another handle may have read it. If it is gone by now, the register was lost.
        if let Some(state) = known.state() {
            self.note_seen(LatestSeen::from_state(state));
        }
        let payload = PutPayload::from(next.encode());
        let mut sends = 0;
        loop {
            // 1. Send the state. The condition is the same each time, so it is applied once at most.
            let options = PutOptions::from(known.condition());
            let put = self.store.put_opts(&self.paths.register, payload.clone(), options);
            let error = match put.await {
                Ok(answer) => {
                    self.note_seen(LatestSeen::from_state(next));
                    self.known = Some(Snapshot::new(Some((next.clone(), answer.into()))));
                    return Ok(Sent::Applied);
                }
                // The store can't put on conditions, and has sent nothing.
                Err(source @ (Error::NotImplemented { .. } | Error::NotSupported { .. })) => {
                    return Err(RegisterError::Store { resource: self.resource.clone(), source });
                }
                // A failed condition may be the echo of this very write: the client of the store
                // repeats requests. Any other error leaves open whether the request arrived.
                Err(error) => error,
            };
            sends += 1;

            // 2. Read the register back. It has the ids of its latest writes.
            let seen = match self.load().await {
                Ok(seen) => seen,
                Err(lost @ RegisterError::Lost { .. }) => return Err(lost),
                Err(_) => return Ok(Sent::Unknown(error)),
            };
            let sent = match read_back(known.version(), next, seen.state()) {
                ReadBack::Applied => Sent::Applied,
                ReadBack::NeverLands => Sent::NeverLands,
                ReadBack::Unknown => Sent::Unknown(error),
                // 3. The first may still be under way. If it is applied, the next one is not.
                ReadBack::MayStillLand if sends < SENDS => continue,
                ReadBack::MayStillLand => return Ok(Sent::Unknown(error)),
            };
            self.known = Some(seen);
            return Ok(sent);
        }
    }
}
