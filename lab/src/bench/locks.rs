//! `lab bench locks`: locks of each lock service.

mod durable;
mod gauge;
mod handover;
mod held_leases;
mod hold;
mod python;
mod redis;

use std::{
    fmt::{self, Display},
    num::NonZeroUsize,
    sync::Arc,
};

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::{
    durable::{DurableOptions, Server},
    redis::RedisOptions,
};
use crate::output::Output;

pub use self::held_leases::HoldLeases;

/// How many clients wait for a lock.
const FEW: usize = 2;
const MANY: usize = 100;
/// The parts of a round of uncontended locks. They alternate between the kinds of lock, so that a
/// moment in which the machine is slow affects all kinds alike.
const PARTS: usize = 10;

#[derive(Args, Debug)]
pub struct LocksBench {
    /// The lock services to measure
    #[arg(long = "service", value_enum, value_delimiter = ',', default_values_t = Service::all())]
    services: Vec<Service>,
    /// How many rounds to split the measurements into: the speed of a machine changes over time
    #[arg(long, default_value = "5", value_name = "COUNT")]
    rounds: NonZeroUsize,
    #[command(flatten, next_help_heading = "Redis")]
    redis: RedisOptions,
    #[command(flatten, next_help_heading = "Services that make each answer durable")]
    durable: DurableOptions,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Service {
    Redis,
    Etcd,
    #[value(name = "zookeeper")]
    ZooKeeper,
    Postgres,
    #[value(name = "mariadb")]
    MariaDb,
    Sqlite,
}

impl Service {
    fn all() -> Vec<Self> {
        Self::value_variants().to_vec()
    }
}

#[derive(Debug, Serialize)]
struct Report {
    bench: &'static str,
    services: Vec<ServiceReport>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ServiceReport {
    Redis(redis::Report),
    Durable(durable::Report),
}

impl LocksBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (rounds, mut services) = (self.rounds.get(), Vec::new());
        for service in self.services {
            let server: Arc<dyn Server> = match service {
                Service::Redis => {
                    services.push(ServiceReport::Redis(self.redis.measure(rounds).await?));
                    continue;
                }
                Service::Etcd => Arc::new(durable::Etcd::start().await?),
                Service::ZooKeeper => Arc::new(durable::ZooKeeper::start().await?),
                Service::Postgres => Arc::new(durable::Postgres::start().await?),
                Service::MariaDb => Arc::new(durable::MariaDb::start().await?),
                Service::Sqlite => Arc::new(durable::Sqlite::start().await?),
            };
            services.push(ServiceReport::Durable(self.durable.measure(rounds, server).await?));
        }
        self.output.print(&Report { bench: "locks", services })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, service) in self.services.iter().enumerate() {
            if number > 0 {
                writeln!(f, "\n")?;
            }
            match service {
                ServiceReport::Redis(report) => report.fmt(f)?,
                ServiceReport::Durable(report) => report.fmt(f)?,
            }
        }
        Ok(())
    }
}
