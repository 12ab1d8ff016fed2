//! The registers that this server changed last.

use std::{sync::Mutex, time::Duration};

use fence::{
    ResourceName,
    object_store::{Register, Registers, Snapshot},
};

use super::{
    generations::{Generations, Kept},
    latest_states::LatestStates,
};

/// How many bytes the handles of one generation have, with the values that are parts of registers.
const GENERATION_BYTES: usize = 64 << 20;
/// About how many bytes a handle takes beside these values: for two snapshots with the ids of 16 writes,
/// their holders and attributes, and for two paths.
const HANDLE_BYTES: usize = 4096;
/// How old a register may be that was read for a change.
const FRESH: Duration = Duration::from_millis(50);
/// How old a register may be that this server alone has changed lately. A server that pauses for longer
/// reads first: a register knows its last 16 writes, and the outcome of a write before these is unknown.
const HELD: Duration = Duration::from_secs(1);

/// The registers that this server changed last, as it has left them. They decide nothing: the condition of
/// each change proves that a register still is so.
///
/// Each register knows the latest state that this server has seen, so that it notices if that was lost.
#[derive(Debug)]
pub(super) struct Handles {
    registers: Registers,
    kept: Mutex<Generations<Handle>>,
    latest: LatestStates,
}

/// A register, and what is known of it.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) register: Register,
    /// The register as this server has left it.
    last_change: Option<Snapshot>,
    /// The register as it was read since.
    last_read: Option<Snapshot>,
    /// Whether nobody else has changed it between two changes of this server.
    is_held: bool,
    /// Whether leftovers of large values were collected.
    pub(super) is_collected: bool,
}

impl Handles {
    pub(super) fn new(registers: Registers) -> Self {
        let kept = Mutex::new(Generations::new(GENERATION_BYTES));
        Self { registers, kept, latest: LatestStates::new() }
    }

    /// Returns a register that knows nothing but the latest state that was seen.
    pub(super) fn new_register(&self, resource: &ResourceName) -> Register {
        let mut register = self.registers.register(resource);
        self.latest.give(resource, &mut register);
        register
    }

    /// Notes what a register has seen.
    pub(super) fn note_seen(&self, resource: &ResourceName, register: &Register) {
        self.latest.note(resource, register);
    }

    /// Takes the handle of a resource. Somebody else who wants it meanwhile gets a new one.
    pub(super) fn take(&self, resource: &ResourceName) -> Handle {
        let kept = self.kept.lock().expect("no panic while it is held").take(resource);
        match kept {
            Some(mut handle) => {
                self.latest.give(resource, &mut handle.register);
                handle
            }
            None => Handle::new(self.new_register(resource)),
        }
    }

    /// Keeps a handle for the next change.
    pub(super) fn keep(&self, resource: &ResourceName, handle: Handle) {
        self.note_seen(resource, &handle.register);
        self.kept.lock().expect("no panic while it is held").put(resource, handle);
    }
}

impl Handle {
    fn new(register: Register) -> Self {
        let (last_change, last_read) = (None, None);
        Self { register, last_change, last_read, is_held: false, is_collected: false }
    }

    /// The register as it probably is.
    pub(super) fn probable(&self) -> Option<&Snapshot> {
        let read = self.last_read.as_ref().filter(|snapshot| snapshot.age() < FRESH);
        let left = || self.last_change.as_ref().filter(|it| self.is_held && it.age() < HELD);
        read.or_else(left)
    }

    /// Notes the register as it was read.
    pub(super) fn note_read(&mut self, snapshot: Snapshot) {
        let last_change = self.last_change.as_ref();
        self.is_held = last_change.is_some_and(|last| last.version() == snapshot.version());
        self.last_read = Some(snapshot);
    }

    /// Notes that this server has changed the register.
    pub(super) fn note_change(&mut self, now: Snapshot) {
        (self.last_change, self.last_read) = (Some(now), None);
    }

    /// Forgets the snapshots: somebody else has changed the register, or it is not known who has.
    pub(super) fn forget_snapshots(&mut self) {
        (self.last_change, self.last_read, self.is_held) = (None, None, false);
    }
}

impl Kept for Handle {
    fn bytes(&self) -> usize {
        let snapshots = [&self.last_change, &self.last_read];
        let inline = snapshots.into_iter().flatten().map(Snapshot::inline_bytes);
        HANDLE_BYTES + inline.sum::<usize>()
    }
}
