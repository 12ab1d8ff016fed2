//! Locks in a service that makes each answer durable, beside the least that the service can do.

mod counted;
mod etcd;
mod mariadb;
mod measurements;
mod postgres;
mod report;
mod server;
mod sqlite;
mod upserts;
mod waiting;
mod zookeeper;

use std::{num::NonZeroUsize, sync::Arc};

use clap::Args;

use self::measurements::{Counts, Measurements};

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
}

impl DurableOptions {
    pub(super) async fn measure(
        &self,
        rounds: usize,
        server: Arc<dyn Server>,
    ) -> anyhow::Result<Report> {
        let mut measurements = Measurements::start(server).await?;
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
