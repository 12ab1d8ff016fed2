//! Locks in a service that makes each answer durable, beside the least that the service can do.

mod counted;
mod etcd;
mod mariadb;
mod measurements;
mod postgres;
mod report;
mod server;
mod slow_commits;
mod sqlite;
mod upserts;
mod waiting;
mod zookeeper;

use std::{
    num::{NonZeroU64, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use clap::Args;

use self::{
    measurements::{Counts, Measurements},
    report::SlowCommits,
};

use super::held_leases::HeldLeases;

pub(super) use self::{
    etcd::Etcd, mariadb::MariaDb, postgres::Postgres, report::Report, server::Server,
    sqlite::Sqlite, zookeeper::ZooKeeper,
};

#[derive(Args, Debug)]
pub(super) struct DurableOptions {
    /// How often to acquire and release a lock
    #[arg(long, default_value = "500", value_name = "COUNT")]
    durable_acquires: NonZeroUsize,
    /// How often to hand over each kind of lock
    #[arg(long, default_value = "100", value_name = "COUNT")]
    durable_handovers: NonZeroUsize,
    /// How many clients wait for a lock that many want
    #[arg(long, default_value = "100", value_name = "COUNT")]
    durable_waiters: NonZeroUsize,
    /// How many leases one process holds at once
    #[arg(long, default_value = "10000", value_name = "COUNT")]
    durable_leases: NonZeroUsize,
    /// How long the process holds them, and their ttl
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    durable_seconds: NonZeroU64,
    /// Measure as one does whose commits are slow already
    #[arg(long, hide = true)]
    commits_are_slow: bool,
}

impl DurableOptions {
    /// Measures a service, and then once more with slow commits.
    pub(super) async fn measure(
        &self,
        rounds: usize,
        server: Arc<dyn Server>,
    ) -> anyhow::Result<Report> {
        let service = server.name();
        let report = self.measure_as_it_is(rounds, server.clone()).await?;
        if self.commits_are_slow {
            return Ok(report);
        }
        let held_for = Duration::from_secs(self.durable_seconds.get());
        let leases = self.durable_leases.get();
        let leases = HeldLeases::measure(&server.url(), leases, held_for, held_for, async || {
            server.commands().await
        })
        .await?;
        let slow_commits = match slow_commits::strace() {
            Ok(strace) => {
                let Self { durable_acquires, durable_handovers, durable_waiters, .. } = self;
                let arguments = [
                    format!("--service={service}"),
                    format!("--rounds={rounds}"),
                    format!("--durable-acquires={durable_acquires}"),
                    format!("--durable-handovers={durable_handovers}"),
                    format!("--durable-waiters={durable_waiters}"),
                ];
                SlowCommits::Measured(slow_commits::measure(strace, &arguments)?)
            }
            Err(error) => SlowCommits::NotMeasured { because: error.to_string() },
        };
        Ok(report.with_leases(leases).with_slow_commits(slow_commits))
    }

    async fn measure_as_it_is(
        &self,
        rounds: usize,
        server: Arc<dyn Server>,
    ) -> anyhow::Result<Report> {
        let mut measurements = Measurements::start(server, self.durable_waiters.get()).await?;
        let per_round = |count: NonZeroUsize| count.get().div_ceil(rounds);
        let counts = Counts {
            acquires: per_round(self.durable_acquires),
            handovers: per_round(self.durable_handovers),
        };
        for round in 1..=rounds {
            measurements.add_round(round, counts).await?;
        }
        Ok(Report::new(rounds, &measurements))
    }
}
