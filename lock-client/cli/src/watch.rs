//! `lock-client watch`.

use std::{io, time::Duration};

use clap::Args;
use fence::ResourceName;
use tokio::time::sleep;

use super::{
    Failure, LockService,
    events::{cannot_print, print_aside, reader_has_gone},
    name,
    signals::Signals,
    status::Shown,
    voice::Voice,
    with_causes,
};
use lock_client::{
    Locks,
    backend::{Status, Wakeups},
};

/// How often to look at a lock of which nothing is heard: only its freeing is told.
const INTERVAL: Duration = Duration::from_millis(500);

pub(crate) const HELP: &str = "\
First comes the lock as it is, then a line whenever it is given to somebody, freed, or somebody joins \
or leaves its queue. The lines are those of status. Of what lasts for less than half a second, not all \
may be seen: a last_token that has changed tells that there was something, but not how often.

If Redis can't be reached at first, the exit code is 69; if it can't later, it is tried again. SIGINT \
and SIGTERM end the watch, as does the end of who reads it, with 0.";

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// The lock's name
    #[arg(value_parser = name)]
    name: ResourceName,

    #[command(flatten)]
    lock_service: LockService,
}

impl Watch {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut signals = Signals::to_end()?;
        let locks = self.lock_service.locks()?;
        tokio::select! {
            ended = watch(&locks, &self.name) => ended,
            _ = signals.next() => Ok(()),
        }
    }
}

async fn watch(locks: &Locks, name: &ResourceName) -> Result<(), Failure> {
    // What happens after the first look is heard.
    let freed = locks.wakeups(name).await?;
    let voice = Voice::new();
    let mut before = None;
    let mut status = locks.status(name).await?;
    loop {
        if before.as_ref() != Some(&what_counts(&status)) {
            before = Some(what_counts(&status));
            match print_aside(&Shown::of(name, &status)).await {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                printed => printed.map_err(|error| cannot_print(&error))?,
            }
        }
        match next_look(locks, name, &freed, &voice).await {
            Some(next) => status = next,
            None => return Ok(()),
        }
    }
}

/// Looks again when the lock may have been freed, or after a while, until there is an answer, or
/// nobody to tell it to.
async fn next_look(
    locks: &Locks,
    name: &ResourceName,
    freed: &Wakeups,
    voice: &Voice,
) -> Option<Status> {
    let mut told = false;
    loop {
        tokio::select! {
            () = freed.next() => {}
            () = sleep(INTERVAL) => {}
        }
        if reader_has_gone() {
            return None;
        }
        match locks.status(name).await {
            Ok(status) => return Some(status),
            Err(error) if !told => {
                told = true;
                voice.say(format!("{}; it is tried again", with_causes(&error)));
            }
            Err(_) => {}
        }
    }
}

/// What makes a difference between two looks.
fn what_counts(status: &Status) -> Status {
    let mut status = status.clone();
    if let Some(held) = &mut status.held {
        held.remaining = None;
    }
    status
}
