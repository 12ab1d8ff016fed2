//! The terms that a command takes a lock on, as arguments.

use std::time::Duration;

use clap::Args;
use fence::ResourceName;
use tokio::time::timeout;

use super::{
    Failure,
    signals::{Signals, ended_by},
    ttl,
};
use lock_client::{AcquireError, Lease, Locks, Terms, Ttl};

/// How long to wait until an acquire that was cut short has left nothing behind. The library gives up
/// after 2 seconds.
const UNDO_PATIENCE: Duration = Duration::from_secs(3);

#[derive(Args, Debug)]
pub(crate) struct TermsArgs {
    /// How long the lock is granted for, such as 30s or 500ms
    ///
    /// If its holder dies, the lock is free after so long.
    #[arg(long, default_value = "30s", value_parser = ttl, value_name = "DURATION")]
    pub(crate) ttl: Ttl,

    /// Wait for so long at most, if somebody else holds the lock [default: until it is free]
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait")]
    pub(crate) wait: Option<humantime::Duration>,

    /// Don't wait if somebody else holds the lock
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// First come, first served, among all who ask for this; not with several nodes
    #[arg(long)]
    fair: bool,
}

/// Why a lock was not acquired by a command.
#[derive(Debug)]
pub(crate) enum NotAcquired {
    /// A signal ended the wait. Nothing is left behind.
    Interrupted(rustix::process::Signal),
    /// The lock was not to be had.
    Because(AcquireError),
}

impl TermsArgs {
    pub(crate) fn terms(&self) -> Terms {
        let terms = Terms::new(self.ttl);
        let terms = match self.wait {
            Some(wait) => terms.wait(*wait),
            None if self.no_wait => terms.no_wait(),
            None => terms,
        };
        if self.fair { terms.fair() } else { terms }
    }
}

/// Acquires a lock, unless a signal comes first: then it waits until nothing is left behind.
pub(crate) async fn acquire(
    locks: &Locks,
    name: &ResourceName,
    terms: Terms,
    signals: &mut Signals,
) -> Result<Lease, NotAcquired> {
    let signal = tokio::select! {
        biased;
        acquired = locks.acquire(name, terms) => return acquired.map_err(NotAcquired::Because),
        signal = signals.next() => signal,
    };
    if timeout(UNDO_PATIENCE, locks.wait_for_background()).await.is_err() {
        tracing::debug!(%name, "it is not known whether the lock was given back");
    }
    Err(NotAcquired::Interrupted(signal))
}

impl From<NotAcquired> for Failure {
    fn from(reason: NotAcquired) -> Self {
        match reason {
            NotAcquired::Interrupted(signal) => ended_by(signal),
            NotAcquired::Because(error) => error.into(),
        }
    }
}
