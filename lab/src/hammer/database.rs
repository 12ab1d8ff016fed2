//! The interface of a database under the hammer.

use std::time::Duration;

use async_trait::async_trait;
use clap::ValueEnum;
use fence::{Fence, ResourceName};
use serde::Serialize;
use tokio::time::sleep;

use super::history::Order;

/// The well-known wrong ways to check a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Variant {
    /// Update the data where the fence still has the token, by a subquery
    Exists,
    /// Select the fence's token, compare it in the program, then update the data
    SelectThenUpdate,
    /// Keep the token in the data's own row, and claim nothing before reading
    RowToken,
    /// Keep the token in the metadata of an object, whose ETag follows the content alone
    Metadata,
    /// Read an object, compare its token in the program, then write without a condition
    HeadThenPut,
}

/// The databases that a wrong way can be tried on.
impl Variant {
    pub(super) fn is_for_object_storage(self) -> bool {
        matches!(self, Self::Metadata | Self::HeadThenPut)
    }
}

/// A database with resources of this run.
#[async_trait]
pub(super) trait Database: Sync {
    /// The names of its isolation levels.
    fn isolation_levels(&self) -> &'static [&'static str];

    /// How the order of the writes is known.
    fn order(&self) -> Order {
        Order::Replaced
    }

    /// Creates the resources, without any writes.
    async fn prepare(&self, resources: &[ResourceName]) -> anyhow::Result<()>;

    /// Opens a connection for one client.
    async fn connect(&self, isolation: &str) -> anyhow::Result<Box<dyn Connection>>;

    /// Returns how many increments a resource has.
    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64>;

    /// Removes everything that [`prepare`](Self::prepare) created, if it was called.
    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()>;
}

/// A client's connection. The client increments resources: it reads, adds one and writes.
#[async_trait]
pub(super) trait Connection: Send {
    /// Claims and reads, in its own transaction.
    async fn read(&mut self, offer: &Offer) -> anyhow::Result<Attempt<Seen>>;

    /// Claims and writes, in its own transaction.
    async fn write(&mut self, offer: &Offer, increments: u64) -> anyhow::Result<Attempt<Written>>;

    /// Claims, reads, pauses and writes, in one transaction. Without transactions, other clients may
    /// come in between.
    async fn increment(
        &mut self,
        offer: &Offer,
        pause: Duration,
    ) -> anyhow::Result<Attempt<(Seen, Written)>> {
        let seen = match self.read(offer).await? {
            Attempt::Committed(seen) => seen,
            Attempt::Rejected => return Ok(Attempt::Rejected),
            Attempt::TryAgain => return Ok(Attempt::TryAgain),
            Attempt::Unknown => return Ok(Attempt::Unknown),
            Attempt::Lost => return Ok(Attempt::Lost),
        };
        sleep(pause).await;
        let written = self.write(offer, seen.increments + 1).await?;
        Ok(written.map(|written| (seen, written)))
    }
}

/// A resource, and the token and holder that are offered for it.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) resource: ResourceName,
    pub(super) fence: Fence,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attempt<T> {
    Committed(T),
    /// The fence, or the wrong way of checking, rejected the token.
    Rejected,
    /// The database asks to try again, because of a deadlock or a snapshot that is too old.
    TryAgain,
    /// A write may have been committed.
    Unknown,
    /// The resource is older than this client has seen it, or gone.
    Lost,
}

impl<T> Attempt<T> {
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Self::Committed(result) => Attempt::Committed(change(result)),
            Self::Rejected => Attempt::Rejected,
            Self::TryAgain => Attempt::TryAgain,
            Self::Unknown => Attempt::Unknown,
            Self::Lost => Attempt::Lost,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) state: u64,
    pub(super) increments: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) state: u64,
    /// 0 if only the states have an order.
    pub(super) replaced: u64,
}
