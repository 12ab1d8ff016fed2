//! The deadline of a lease, which `run` writes to a file for the `run`s within its command.
//!
//! A lock service may show a longer time than the lease has: etcd shows whole seconds, and ZooKeeper
//! always the whole ttl. So only the process that renews the lease knows its deadline.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};
use tempfile::NamedTempFile;

use crate::environment::LeaseRecord;

/// A clock that all processes of a machine share, and that counts suspended time.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A renewal moves the deadline by more. Less is the time between two looks at the clock.
const RESOLUTION: Duration = Duration::from_millis(1);

/// The ttl and the deadline, in nanoseconds. The file has them twice, and then the id of the boot.
const ENTRY: usize = 16;
const BOOT_ID: usize = 36;

/// The file in which `run` writes the deadline of its lease. It is deleted when this is dropped.
#[derive(Debug)]
pub(super) struct DeadlineFile {
    file: NamedTempFile,
    ttl: Duration,
    /// The deadline that it has.
    deadline: Duration,
}

impl DeadlineFile {
    /// Makes the file. Without it, a `run` within the command counts on the first deadline alone.
    pub(super) fn create(ttl: Duration, remaining: Duration) -> io::Result<Self> {
        let file = tempfile::Builder::new().prefix("lock-client-").tempfile()?;
        file.as_file().write_all_at(&boot_id(), 2 * ENTRY as u64)?;
        let mut made = Self { file, ttl, deadline: Duration::ZERO };
        made.publish(remaining);
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Writes the deadline, if it has changed.
    pub(super) fn publish(&mut self, remaining: Duration) {
        let deadline = if remaining.is_zero() { remaining } else { now() + remaining };
        if deadline.abs_diff(self.deadline) > RESOLUTION {
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let entry = [nanos(self.ttl), nanos(deadline)].map(u64::to_ne_bytes).concat();
            // If this fails, the last deadline stands.
            if self.file.as_file().write_all_at(&entry.repeat(2), 0).is_ok() {
                self.deadline = deadline;
            }
        }
    }
}

impl Drop for DeadlineFile {
    fn drop(&mut self) {
        self.publish(Duration::ZERO);
    }
}

/// The deadline of an outer `run`'s lease.
#[derive(Debug)]
pub(super) struct OuterDeadline {
    file: Option<File>,
    ttl: Duration,
    deadline: Duration,
}

impl OuterDeadline {
    /// Opens the file of the lease. If it is not within reach, or another machine has written it, whose
    /// clock is another, the deadline is that of the first grant.
    pub(super) fn open(lease: &LeaseRecord) -> Self {
        let first = Duration::from_millis(lease.deadline_ms);
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let remaining = first.saturating_sub(clock);
        let file = lease.deadline_file.as_ref().and_then(|file| File::open(file).ok());
        let file = file.filter(|file| {
            let (own, mut written) = (boot_id(), [0; BOOT_ID]);
            file.read_exact_at(&mut written[..own.len()], 2 * ENTRY as u64).is_ok()
                && written[..own.len()] == own
        });
        let mut opened = Self { file, ttl: remaining, deadline: now() + remaining };
        opened.read();
        opened
    }

    /// The time for which each renewal grants the lock. If it is unknown, the time that was left.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The time until the deadline; zero if the outer `run` has lost the lease or released the lock.
    pub(super) fn remaining(&mut self) -> Duration {
        self.read();
        self.deadline.saturating_sub(now())
    }

    /// Ends the lease, whatever the outer `run` writes.
    pub(super) fn end(&mut self) {
        (self.file, self.deadline) = (None, Duration::ZERO);
    }

    /// Reads the file. If its two halves differ, it is being written, and the last deadline stands.
    fn read(&mut self) {
        let mut entry = [0; 2 * ENTRY];
        let Some(file) = &self.file else { return };
        if file.read_exact_at(&mut entry, 0).is_ok() && entry[..ENTRY] == entry[ENTRY..] {
            let nanos = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("it has 8"));
            self.ttl = Duration::from_nanos(nanos(&entry[..8]));
            self.deadline = Duration::from_nanos(nanos(&entry[8..ENTRY]));
        }
    }
}

/// What differs on another machine, and after a restart; empty where the system does not tell.
fn boot_id() -> Vec<u8> {
    let mut id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.truncate(BOOT_ID);
    id
}

fn now() -> Duration {
    clock_gettime(CLOCK).try_into().expect("the clock counts from the start of the machine")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn file_of_another_machine_does_not_count() {
        let first = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let first = first + Duration::from_secs(10);
        let file = DeadlineFile::create(Duration::from_secs(60), Duration::from_secs(60)).unwrap();
        let lease = serde_json::json!({
            "resource": "r", "token": 33, "holder": "me", "grant": 33, "lock_service": "",
            "deadline_ms": u64::try_from(first.as_millis()).unwrap(), "deadline_file": file.path(),
        });
        let lease: LeaseRecord = serde_json::from_value(lease).unwrap();
        let remaining = || OuterDeadline::open(&lease).remaining();
        // The control.
        assert!(remaining() > Duration::from_secs(50));
        file.file.as_file().write_all_at(b"0", 2 * ENTRY as u64).unwrap();
        file.file.as_file().write_all_at(b"1", 2 * ENTRY as u64 + 1).unwrap();
        assert!(remaining() <= Duration::from_secs(10));
    }
}
