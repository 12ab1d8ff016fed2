//! The registers that this server changed last.

use std::{collections::HashMap, mem, sync::Mutex, time::Duration};

use fence::{
    ResourceName,
    object_store::{Register, Registers, Snapshot},
};

/// How many bytes the handles of one generation have, without the texts of their registers.
const GENERATION_BYTES: usize = 32 << 20;
/// About how many bytes a handle takes beside the value in it.
const HANDLE_BYTES: usize = 2048;
/// How old a register may be that was read for a change.
const FRESH: Duration = Duration::from_millis(50);
/// How old a register may be that this server alone has changed lately. A server that pauses for longer
/// reads first: a register knows its last 16 writes, and the outcome of a write before these is unknown.
const HELD: Duration = Duration::from_secs(1);

/// The registers that this server changed last, as it has left them. They decide nothing: the condition of
/// each change proves that a register still is so.
///
/// When the younger of two generations is full, it becomes the older one, and the older one is forgotten.
#[derive(Debug)]
pub(super) struct Handles {
    registers: Registers,
    kept: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ResourceName, Handle>,
    young_bytes: usize,
    old: HashMap<ResourceName, Handle>,
}

/// A register, and what is known of it.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) register: Register,
    /// The register as this server has left it.
    left: Option<Snapshot>,
    /// The register as it was read since.
    read: Option<Snapshot>,
    /// Whether nobody else has changed it between two changes of this server.
    is_held: bool,
    /// Whether leftovers of large values were collected.
    pub(super) is_collected: bool,
}

impl Handles {
    pub(super) fn new(registers: Registers) -> Self {
        Self { registers, kept: Mutex::default() }
    }

    /// Returns a register that knows nothing.
    pub(super) fn new_register(&self, resource: &ResourceName) -> Register {
        self.registers.register(resource)
    }

    /// Takes the handle of a resource. Somebody else who wants it meanwhile gets a new one.
    pub(super) fn take(&self, resource: &ResourceName) -> Handle {
        let mut kept = self.kept.lock().expect("no panic while it is held");
        let kept = &mut *kept;
        if let Some(handle) = kept.young.remove(resource) {
            kept.young_bytes -= handle.bytes();
            return handle;
        }
        kept.old.remove(resource).unwrap_or_else(|| Handle {
            register: self.new_register(resource),
            left: None,
            read: None,
            is_held: false,
            is_collected: false,
        })
    }

    /// Keeps a handle for the next change.
    pub(super) fn keep(&self, resource: &ResourceName, handle: Handle) {
        let mut kept = self.kept.lock().expect("no panic while it is held");
        let kept = &mut *kept;
        kept.young_bytes += handle.bytes();
        if let Some(replaced) = kept.young.insert(resource.clone(), handle) {
            kept.young_bytes -= replaced.bytes();
        }
        if kept.young_bytes >= GENERATION_BYTES {
            kept.young_bytes = 0;
            kept.old = mem::take(&mut kept.young);
        }
    }
}

impl Handle {
    /// The register as it probably is.
    pub(super) fn probable(&self) -> Option<&Snapshot> {
        let read = self.read.as_ref().filter(|snapshot| snapshot.age() < FRESH);
        let left = || self.left.as_ref().filter(|it| self.is_held && it.age() < HELD);
        read.or_else(left)
    }

    /// Notes the register as it was read.
    pub(super) fn note_read(&mut self, snapshot: Snapshot) {
        self.is_held = self.left.as_ref().is_some_and(|left| left.version() == snapshot.version());
        self.read = Some(snapshot);
    }

    /// Notes that this server has changed the register.
    pub(super) fn note_change(&mut self, now: Snapshot) {
        (self.left, self.read) = (Some(now), None);
    }

    /// Notes that somebody else has changed the register.
    pub(super) fn note_rival(&mut self) {
        (self.left, self.read, self.is_held) = (None, None, false);
    }

    fn bytes(&self) -> usize {
        let snapshots = [&self.left, &self.read];
        let inline = snapshots.into_iter().flatten().map(Snapshot::inline_bytes);
        HANDLE_BYTES + inline.sum::<usize>()
    }
}
