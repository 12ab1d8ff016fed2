//! The latest states of registers that this server has seen.

use std::sync::Mutex;

use fence::{
    ResourceName,
    object_store::{LatestSeen, Register},
};

use super::generations::{Generations, Kept};

/// How many bytes the states of one generation have. With names of 32 bytes, these are about 100 000 states.
const GENERATION_BYTES: usize = 16 << 20;
/// About how many bytes a state takes, with its write id.
const STATE_BYTES: usize = 136;

/// The latest states of registers that this server has seen, whatever has become of the request that has seen
/// them. A register that does not follow its state was lost: it has forgotten a fence.
#[derive(Debug)]
pub(super) struct LatestStates(Mutex<Generations<LatestSeen>>);

impl Kept for LatestSeen {
    fn bytes(&self) -> usize {
        STATE_BYTES
    }
}

impl LatestStates {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Generations::new(GENERATION_BYTES)))
    }

    /// Gives a register the state that was seen.
    pub(super) fn give(&self, resource: &ResourceName, register: &mut Register) {
        let states = self.0.lock().expect("no panic while it is held");
        if let Some(seen) = states.get(resource) {
            register.note_seen(seen.clone());
        }
    }

    /// Notes what a register has seen, unless a later state is known.
    pub(super) fn note(&self, resource: &ResourceName, register: &Register) {
        let Some(seen) = register.latest_seen() else { return };
        let mut states = self.0.lock().expect("no panic while it is held");
        let known = states.take(resource).filter(|known| known.version() >= seen.version());
        states.put(resource, known.unwrap_or_else(|| seen.clone()));
    }
}
