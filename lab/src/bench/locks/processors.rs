//! Which processors Redis and its clients run on.

use rustix::{
    io::Result,
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Lets this process run on all its processors again when it is dropped.
#[must_use]
pub(super) struct Separation {
    all: CpuSet,
}

impl Drop for Separation {
    fn drop(&mut self) {
        // They were its processors before.
        let _ = sched_setaffinity(None, &self.all);
    }
}

/// Lets Redis run on the first processor, and this process and its children on the others, if there
/// are others. Where the scheduler moves both, a PING on one processor takes a third of the time
/// that it takes from one to the other, and a ratio depends on the moment.
///
/// # Errors
/// If the operating system does not allow it.
pub(super) fn separate(redis: Pid) -> Result<Separation> {
    let all = sched_getaffinity(None)?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&processor| all.is_set(processor));
    let (mut of_redis, mut of_clients) = (CpuSet::new(), all);
    if let Some(first) = processors.next() {
        of_redis.set(first);
        of_clients.unset(first);
    }
    if of_clients.count() > 0 {
        sched_setaffinity(Some(redis), &of_redis)?;
        sched_setaffinity(None, &of_clients)?;
    }
    Ok(Separation { all })
}
