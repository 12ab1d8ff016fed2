//! `lock-client watch`.

use std::{io, time::Duration};

use clap::Args;
use fence::ResourceName;
use lock_client::{
    Locks,
    backend::{Status, Wakeups},
};
use tokio::time::sleep;

use crate::{
    failure::{Failure, with_causes},
    handle::parse_name,
    lock_service::LockService,
    signals::{ENDING, Signals},
    status::State,
    stderr,
    stdout::{print_unblocked, reader_is_gone},
};

/// How often to look at the lock. Only a release is notified; a grant is not.
const INTERVAL: Duration = Duration::from_millis(500);

pub(crate) const HELP: &str = "\
The first line is the lock as it is now. Each further line follows when the lock is acquired or \
freed, or when a client joins or leaves its queue. The lines are those of status. A change that \
lasts less than half a second may be missed; a higher last_token shows that there was one, but not \
how many.

If the lock service can't be reached at first, the exit code is 69; if it can't be reached later, watch \
retries. SIGHUP, SIGINT, SIGQUIT, SIGTERM, and the end of the reader of stdout end the watch with 0.";

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The lock's name
    #[arg(value_parser = parse_name)]
    name: ResourceName,
}

impl Watch {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let mut signals = Signals::listen(ENDING)?;
        let locks = lock_service.locks()?;
        tokio::select! {
            ended = watch(&locks, &self.name) => ended,
            _ = signals.next() => Ok(()),
        }
    }
}

async fn watch(locks: &Locks, name: &ResourceName) -> Result<(), Failure> {
    // Subscribe before the first look, so that no release after it is missed.
    let freed = locks.wakeups(name).await?;
    let mut printed = None;
    let mut status = locks.status(name).await?;
    loop {
        let compared = without_remaining(&status);
        if printed.as_ref() != Some(&compared) {
            printed = Some(compared);
            match print_unblocked(&State::new(name, &status)).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                result => result.map_err(Failure::cannot_print)?,
            }
        }
        match next_status(locks, name, &freed).await {
            Some(next) => status = next,
            None => return Ok(()),
        }
    }
}

/// Looks again when the lock may have been freed, or after the interval. Retries until the lock
/// service answers. `None` if the reader of stdout is gone.
async fn next_status(locks: &Locks, name: &ResourceName, freed: &Wakeups) -> Option<Status> {
    let mut reported = false;
    loop {
        tokio::select! {
            () = freed.next() => {}
            () = sleep(INTERVAL) => {}
        }
        if reader_is_gone() {
            return None;
        }
        match locks.status(name).await {
            Ok(status) => return Some(status),
            Err(error) if !reported => {
                reported = true;
                stderr::print(format!("{}; retrying", with_causes(&error)));
            }
            Err(_) => {}
        }
    }
}

/// The part of a status whose change is printed. The remaining time changes all the time.
fn without_remaining(status: &Status) -> Status {
    let mut status = status.clone();
    if let Some(held) = &mut status.held {
        held.remaining = None;
    }
    status
}
