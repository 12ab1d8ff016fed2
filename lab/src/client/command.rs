//! The commands that a client reads from stdin.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A command to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub(crate) enum Command {
    /// Acquire the lock.
    Acquire(Terms),
    /// Set the key of a naive lock without an expiry (SETNX).
    SetWithoutExpiry(Terms),
    /// Set the expiry of a naive lock (PEXPIRE).
    SetExpiry { ttl_ms: u64 },
    /// Claim and read, as far as the store claims.
    Read,
    /// Check that the lease is valid.
    CheckLease,
    /// Write a value.
    Write { value: String },
    /// Write what is left of the value that was read, after this many were sold.
    Sell { count: u64 },
    /// Work for this long.
    Work { for_ms: u64 },
    /// Look who holds the naive lock (GET).
    Compare,
    /// Delete the naive lock, also if another client holds it (DEL).
    Delete,
    /// Release the lock.
    Release,
    /// Read how many items of a sale are left.
    ReadStock,
    /// Take an item of a sale, if the stock that was read has one.
    TakeItem,
}

/// The terms on which a client asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) ttl_ms: u64,
    /// How long the client waits while somebody else holds the lock.
    pub(crate) wait_ms: u64,
    pub(crate) order: Order,
    pub(crate) renewal: Renewal,
}

/// In which order waiting clients acquire the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// In none: all are notified when the lock is free.
    Unordered,
    /// First come, first served.
    Fair,
}

/// Whether the lock client renews the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Renewal {
    Off,
    Automatic,
}

impl Terms {
    /// A lease for this long, without renewal. The client doesn't wait for it.
    pub(crate) fn new(ttl: Duration) -> Self {
        let ttl_ms = millis(ttl);
        Self { ttl_ms, wait_ms: 0, order: Order::Unordered, renewal: Renewal::Off }
    }

    /// Waits for this long if somebody else holds the lock.
    pub(crate) fn wait(self, wait: Duration) -> Self {
        Self { wait_ms: millis(wait), ..self }
    }

    pub(crate) fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    pub(crate) fn renewal(self, renewal: Renewal) -> Self {
        Self { renewal, ..self }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().expect("durations here are short")
}
