//! Replaces a register on the condition that it still is as it was read.

use std::time::Duration;

use ::object_store::{Error, PutOptions, PutPayload};
use tokio::time::sleep;

use super::{LatestSeen, Register, Snapshot};
use crate::object_store::{
    failure::Failure,
    outcome::RegisterError,
    read_back::{ReadBack, read_back},
    state::State,
};

/// How often a state is sent while the register stays as it was read.
const SENDS: usize = 4;
/// How long to wait before a state is sent again. Half of it is added at random, so that clients don't meet
/// again.
const PAUSE: Duration = Duration::from_millis(100);
/// The same after 429. Some stores take one write a second for each key.
const PAUSE_AFTER_THROTTLING: Duration = Duration::from_secs(1);

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
        // Whether a request that was sent before may have been applied, or may still be.
        let mut may_have_landed = false;
        loop {
            // 1. Send the state. The condition is the same each time, so it is applied once at most. If this
            // future is dropped meanwhile, nobody knows whether it was.
            let options = PutOptions::from(known.condition());
            self.is_in_doubt = true;
            let put = self.writer.put_opts(&self.paths.register, payload.clone(), options).await;
            let error = match put {
                Ok(answer) => {
                    self.is_in_doubt = false;
                    self.note_seen(LatestSeen::from_state(next));
                    self.known = Some(Snapshot::new(Some((next.clone(), answer.into()))));
                    return Ok(Sent::Applied);
                }
                // A failed condition may be the echo of this very write: the client of the store
                // repeats requests. Most other errors leave open whether the request arrived.
                Err(error) => error,
            };
            sends += 1;
            let failure = Failure::from_error(&error);
            may_have_landed |= !failure.is_rejection();
            self.is_in_doubt = may_have_landed;
            let error = failure.explain(error);
            if failure.has_no_conditions() && !may_have_landed {
                let resource = self.resource.clone();
                return Err(RegisterError::NoConditionalWrites { resource, source: error });
            }

            // 2. Read the register back. It has the ids of its latest writes.
            let seen = match self.load().await {
                Ok(seen) => seen,
                Err(lost @ RegisterError::Lost { .. }) => return Err(lost),
                Err(_) if may_have_landed => return Ok(Sent::Unknown(error)),
                Err(_) => return Err(self.store_failed(error)),
            };
            let sent = match read_back(known.version(), next, seen.state()) {
                ReadBack::Applied => Sent::Applied,
                ReadBack::NeverLands => Sent::NeverLands,
                ReadBack::Unknown if may_have_landed => Sent::Unknown(error),
                ReadBack::Unknown => Sent::NeverLands,
                // 3. An earlier request may still be under way. If it is applied, the next one is not.
                ReadBack::MayStillLand if sends < SENDS && failure.is_momentary() => {
                    sleep(pause(failure, sends)).await;
                    continue;
                }
                ReadBack::MayStillLand if may_have_landed => return Ok(Sent::Unknown(error)),
                // 4. The store has rejected each of them, so nothing has changed, nor will.
                ReadBack::MayStillLand => {
                    self.known = Some(seen);
                    return Err(self.store_failed(error));
                }
            };
            self.is_in_doubt = matches!(sent, Sent::Unknown(_));
            self.known = Some(seen);
            return Ok(sent);
        }
    }
}

fn pause(failure: Failure, sends: usize) -> Duration {
    let pause = match failure.is_throttled() {
        true => PAUSE_AFTER_THROTTLING,
        false => PAUSE * (1 << (sends - 1)),
    };
    let random = f64::from(getrandom::u32().unwrap_or_default()) / f64::from(u32::MAX);
    pause + pause.mul_f64(random / 2.0)
}
