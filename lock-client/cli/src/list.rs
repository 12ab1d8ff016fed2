//! `lock-client list`.

use clap::Args;
use fence::ResourceName;
use futures_util::{StreamExt, stream};
use lock_client::{LockServiceError, Locks, backend::BackendError};

use crate::{
    exit_code,
    failure::{Failure, with_causes},
    lock_service::{HeldLocks, LockService},
    status::State,
    stderr,
    stdout::print,
};

/// How many locks are asked for at once. Each may need a connection of its own.
const AT_ONCE: usize = 50;

pub(crate) const HELP: &str = "\
Each line is the state of one lock, as status prints it: name, token, holder, label, since when, \
remaining time, queue. The names are read a page at a time: in Redis by SCAN, on all primaries of a \
Cluster and on all nodes of Redlock. A lock that is acquired or released meanwhile may be missing. \
A lock that can't be read, because somebody else has written it or because it is another user's in \
ZooKeeper, is reported on stderr, and the exit code is 69.

Example:
  lock-client list orders/ | jq -r '[.name, .label] | @tsv'";

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,
}

impl List {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let held = HeldLocks::from_service(lock_service)?;
        let (mut failure, mut is_complete) = (None, true);
        let mut pages = held.names(&self.prefix);
        while let Some(page) = pages.next().await {
            match page {
                Ok(names) => is_complete &= print_held(held.locks(), names).await?,
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(Failure::unavailable(with_causes(&error))),
            None if !is_complete => Err(Failure::Reported(exit_code::UNAVAILABLE)),
            None => Ok(()),
        }
    }
}

/// Asks for the states of a page of locks, and prints those that are still held. Reports the locks that
/// can't be read, and returns whether all were.
async fn print_held(locks: &Locks, mut names: Vec<ResourceName>) -> Result<bool, Failure> {
    names.sort_unstable();
    let status = |name| async move { (locks.status(&name).await, name) };
    let mut states = stream::iter(names).map(status).buffered(AT_ONCE);
    let mut is_complete = true;
    while let Some((status, name)) = states.next().await {
        match status {
            Ok(status) if status.held.is_some() => print(&State::new(&name, &status))?,
            Ok(_) => {}
            Err(error @ LockServiceError { source: BackendError::Rejected(_), .. }) => {
                stderr::print(with_causes(&error));
                is_complete = false;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(is_complete)
}
