//! The latest state of a register that a client has seen.

use super::Register;
use crate::object_store::state::State;

/// The latest state of a register that a client has seen: its version, and the random id of the write that
/// made it.
///
/// A register that is not this state, and does not follow it either, [was
/// lost](super::super::RegisterError::Lost).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestSeen {
    version: u64,
    write_id: String,
}

impl LatestSeen {
    pub(super) fn from_state(state: &State) -> Self {
        Self { version: state.version, write_id: state.write_id.clone() }
    }

    /// Returns its version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the register may be this state or a later one. A register has the ids of its last 16 writes:
    /// one that was made anew, and has overtaken this version, lacks this write. After more writes, the two
    /// can't be distinguished any more.
    pub(super) fn may_precede(&self, found: Option<&State>) -> bool {
        found.is_some_and(|state| {
            state.version >= self.version
                && state.write_id_at(self.version).is_none_or(|id| id == self.write_id)
        })
    }
}

impl Register {
    /// Returns the latest state that this handle has seen, or has been [given](Self::note_seen).
    pub fn latest_seen(&self) -> Option<&LatestSeen> {
        self.latest.as_ref()
    }

    /// Notes a state of the same resource that another handle has seen. From then on, this handle reports an
    /// older register as lost. Forgets nothing that is later.
    pub fn note_seen(&mut self, seen: LatestSeen) {
        if self.latest.as_ref().is_none_or(|latest| latest.version < seen.version) {
            self.latest = Some(seen);
        }
    }
}
