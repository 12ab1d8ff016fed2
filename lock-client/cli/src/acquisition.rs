//! Acquiring a lock: the options for it, and an acquire that a signal ends.

use std::time::Duration;

use clap::Args;
use fence::ResourceName;
use lock_client::{AcquireError, Lease, Locks, Order, Terms, Ttl};
use tokio::time::timeout;

use crate::{
    exit_code,
    failure::{Failure, with_causes},
    signals::Signals,
    stderr,
    waiting::{self, Listener},
};

/// How long an interrupted acquire may take to undo itself. With the default answer time-out, the
/// library gives up after 2 seconds.
const UNDO_PATIENCE: Duration = Duration::from_secs(3);

/// The options for acquiring a lock.
#[derive(Args, Debug)]
pub(crate) struct AcquireOptions {
    /// How long the lock is granted for, such as 30s or 500ms
    ///
    /// If its holder dies, the lock is free after this time.
    #[arg(long, default_value = "30s", value_parser = parse_ttl, value_name = "DURATION")]
    pub(crate) ttl: Ttl,

    /// How long to wait at most while another client holds the lock [default: until it is free]
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait")]
    pub(crate) wait: Option<humantime::Duration>,

    /// Don't wait while another client holds the lock
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// First come, first served, among all clients that ask for this; not with Redlock
    #[arg(long)]
    fair: bool,

    /// How long to keep the lock's counter after the lock [default: as it is kept, or for ever]
    ///
    /// It suits names that are many and short-lived. A counter that is gone starts again at the
    /// client's Unix time in milliseconds. This is above every token that it issued, unless clocks
    /// differ by more than this time, or the lock is granted more than 1 000 times a second
    /// throughout. Not with Redlock.
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_counter_for: Option<humantime::Duration>,

    /// A text that status and list show beside the lock, before the host and the process id; not with
    /// Redlock
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

impl AcquireOptions {
    pub(crate) fn terms(&self) -> Terms {
        let terms = Terms::new(self.ttl);
        let terms = match self.wait {
            Some(wait) => terms.wait(*wait),
            None if self.no_wait => terms.no_wait(),
            None => terms,
        };
        match self.order() {
            Order::Fair => terms.fair(),
            Order::Unordered => terms,
        }
    }

    pub(crate) fn order(&self) -> Order {
        if self.fair { Order::Fair } else { Order::Unordered }
    }
}

/// Parses a ttl, such as `30s`.
pub(crate) fn parse_ttl(text: &str) -> Result<Ttl, String> {
    let duration: humantime::Duration =
        text.parse().map_err(|error: humantime::DurationError| error.to_string())?;
    Ttl::new(duration.into()).map_err(|error| error.to_string())
}

/// Acquires a lock, unless a signal comes first. Then it waits until the acquire is undone.
pub(crate) async fn acquire(
    locks: &Locks,
    name: &ResourceName,
    terms: Terms,
    order: Order,
    signals: &mut Signals,
    listener: Listener<'_>,
) -> Result<Lease, Failure> {
    let acquired = tokio::select! {
        biased;
        acquired = locks.acquire(name, terms) => Ok(acquired),
        received = signals.next() => Err(received.signal),
        never = waiting::report(locks, name, order, listener) => match never {},
    };
    stderr::flush();
    match acquired {
        Ok(Ok(lease)) => Ok(lease),
        Ok(Err(error @ AcquireError::Contended { .. })) => {
            let status = locks.status(name).await.ok();
            let holder = status.and_then(|status| waiting::describe(&status));
            let holder = holder.map(|holder| format!(" ({holder})")).unwrap_or_default();
            Err(Failure::Message(exit_code::BUSY, format!("{}{holder}", with_causes(&error))))
        }
        Ok(Err(error)) => Err(error.into()),
        Err(signal) => {
            if timeout(UNDO_PATIENCE, locks.wait_for_background()).await.is_err() {
                stderr::print(format!("lock `{name}` may stay held until its ttl ends"));
            }
            Err(Failure::Interrupted(signal.as_raw()))
        }
    }
}
