//! Locks on one Redis.

mod measurements;
mod peers;
#[cfg(target_os = "linux")]
mod processors;
mod python;
mod report;
mod uncontended;
mod waiter;

use std::{
    num::{NonZeroU64, NonZeroUsize},
    time::Duration,
};

use clap::Args;
use testbed::Redis;

use self::{
    measurements::{Counts, Measurements},
    peers::Peers,
};
use super::{MANY, held_leases::HeldLeases};
use crate::bench::work::Meter;

pub(super) use self::report::Report;

#[derive(Args, Debug)]
pub(super) struct RedisOptions {
    /// How often to acquire and release each kind of uncontended lock
    #[arg(long, default_value = "5000", value_name = "COUNT")]
    acquires: NonZeroUsize,
    /// How often to hand over each kind of lock that notifies its waiters
    #[arg(long, default_value = "500", value_name = "COUNT")]
    handovers: NonZeroUsize,
    /// How often to hand over each kind of lock whose waiters poll
    #[arg(long, default_value = "100", value_name = "COUNT")]
    polled_handovers: NonZeroUsize,
    /// How many leases one process holds at once
    #[arg(long, default_value = "10000", value_name = "COUNT")]
    leases: NonZeroUsize,
    /// How long the process holds them; their ttl is two fifths of this
    #[arg(long, default_value = "10", value_name = "SECONDS")]
    seconds: NonZeroU64,
}

impl RedisOptions {
    pub(super) async fn measure(&self, rounds: usize) -> anyhow::Result<Report> {
        #[cfg_attr(not(target_os = "linux"), expect(unused_mut, reason = "nothing moves it"))]
        let mut redis = Redis::start_on_tcp(&[]).await?;
        #[cfg(target_os = "linux")]
        let _separation = processors::separate(redis.process().pid())?;
        let mut meter = Meter::connect(&redis).await?;
        let measurements = self.measure_rounds(rounds, &redis, &mut meter).await?;
        let held_for = Duration::from_secs(self.seconds.get());
        let leases = self.leases.get();
        let leases =
            HeldLeases::measure(&redis.url(), leases, held_for * 2 / 5, held_for, async || {
                Ok(Some(meter.read().await?.calls_of("evalsha")))
            })
            .await?;
        Ok(Report::new(rounds, &measurements, leases))
    }

    async fn measure_rounds(
        &self,
        rounds: usize,
        redis: &Redis,
        meter: &mut Meter,
    ) -> anyhow::Result<Measurements> {
        let mut peers = Peers::connect(redis, MANY + 1).await?;
        // The first use opens connections and loads scripts, and is not counted.
        let once = Counts { acquires: 1, handovers: 1, polled_handovers: 1 };
        Measurements::new().add_round(0, once, &mut peers, meter).await?;
        let mut measurements = Measurements::new();
        let per_round = |count: NonZeroUsize| count.get().div_ceil(rounds);
        let counts = Counts {
            acquires: per_round(self.acquires),
            handovers: per_round(self.handovers),
            polled_handovers: per_round(self.polled_handovers),
        };
        for round in 1..=rounds {
            measurements.add_round(round, counts, &mut peers, meter).await?;
        }
        Ok(measurements)
    }
}
