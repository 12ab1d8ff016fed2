//! A backend that breaks one promise.

mod client;
mod shared;

use std::sync::{Arc, atomic::Ordering};

use lock_client::{
    Ttl,
    conformance::{Failure, Subject},
};

use self::{client::Client, shared::Shared};
use super::services::OneRedis;

/// How it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    GrantsTwice,
    ChecksThenActs,
    ForgetsTokens,
    LowercasesNames,
    CountsFromTheReply,
    HalvesTtl,
    DoublesTtl,
    ForgetsHolders,
    IgnoresGrants,
    RenewsNothing,
    RenewalSetsShortTtl,
    RenewsExpiredLeases,
    ReissuesTheSame,
    ReissueSetsShortTtl,
    ReleasesOthers,
    ReleasesAgain,
    LosesNotifications,
    NotifiesOne,
    SubscribesOnce,
    IgnoresOrder,
    KeepsWaiters,
    WaitsForTheDead,
    OvertakesTries,
    TakesSilenceForNo,
    NeverGivesUp,
    /// It breaks no promise.
    CannotBeStopped,
}

/// A Redis whose client has a fault.
pub(super) struct Broken<const IS_FAIR: bool = true> {
    redis: OneRedis,
    fault: Fault,
    shared: Arc<Shared>,
}

impl<const IS_FAIR: bool> Broken<IS_FAIR> {
    pub(super) async fn start(fault: Fault) -> Self {
        Self { redis: OneRedis::start().await, fault, shared: Arc::default() }
    }
}

impl<const IS_FAIR: bool> Subject for Broken<IS_FAIR> {
    type Backend = Client;
    const IS_FAIR: bool = IS_FAIR;

    fn connect(&self) -> Client {
        Client::new(self.redis.connect(), self.fault, self.shared.clone())
    }

    fn shortest_ttl(&self) -> Ttl {
        self.redis.shortest_ttl()
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        self.redis.pause().await
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        self.redis.resume().await
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        if self.fault == Fault::CannotBeStopped {
            return Err("no such process".into());
        }
        self.shared.stops.fetch_add(1, Ordering::SeqCst);
        self.redis.stop().await
    }

    async fn start(&mut self) -> Result<(), Failure> {
        self.redis.start().await
    }
}
