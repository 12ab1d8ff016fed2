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

/// The deadline, in nanoseconds. The file has it twice.
const ENTRY: usize = 8;

/// The file in which `run` writes the deadline of its lease. It is deleted when this is dropped.
#[derive(Debug)]
pub(super) struct DeadlineFile {
    file: NamedTempFile,
    /// The deadline that it has.
    deadline: Duration,
}

impl DeadlineFile {
    /// Makes the file. Without it, a `run` within the command counts on the first deadline alone.
    pub(super) fn create(remaining: Duration) -> io::Result<Self> {
        // A restart and another machine have another clock.
        let file =
            tempfile::Builder::new().prefix(&format!("lock-client-{}-", boot_id())).tempfile()?;
        let mut made = Self { file, deadline: Duration::ZERO };
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
            let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
            // If this fails, the last deadline stands.
            if self.file.as_file().write_all_at(&nanos.to_ne_bytes().repeat(2), 0).is_ok() {
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
    deadline: Duration,
}

impl OuterDeadline {
    /// Opens the file of the lease. If it is not within reach, or another machine has written it, whose
    /// clock is another, the deadline is that of the first grant.
    pub(super) fn open(lease: &LeaseRecord) -> Self {
        let first = Duration::from_millis(lease.handle.deadline_ms);
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let file = lease.deadline_file.as_ref();
        let file = file.filter(|file| file.to_string_lossy().contains(&boot_id()));
        let file = file.and_then(|file| File::open(file).ok());
        let mut opened = Self { file, deadline: now() + first.saturating_sub(clock) };
        opened.read();
        opened
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
            let nanos = entry[..ENTRY].try_into().expect("an entry is a number");
            self.deadline = Duration::from_nanos(u64::from_ne_bytes(nanos));
        }
    }
}

/// What differs on another machine, and after a restart; empty where the system does not tell.
fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
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
        let file = DeadlineFile::create(Duration::from_secs(60)).unwrap();
        let elsewhere =
            tempfile::Builder::new().prefix("lock-client-another-boot-").tempfile().unwrap();
        fs::copy(file.path(), elsewhere.path()).unwrap();
        let remaining = |file: &Path| {
            let lease = serde_json::json!({
                "name": "r", "token": 33, "holder": "me", "grant": 33, "ttl_ms": 60_000,
                "deadline_ms": u64::try_from(first.as_millis()).unwrap(), "lock_service": "",
                "deadline_file": file,
            });
            let lease: LeaseRecord = serde_json::from_value(lease).unwrap();
            OuterDeadline::open(&lease).remaining()
        };
        assert!(remaining(file.path()) > Duration::from_secs(50), "the control");
        assert!(remaining(elsewhere.path()) <= Duration::from_secs(10));
    }
}
