//! `lab bench locks`: locks of each lock service.

mod counted;
mod durable;
mod etcd;
mod handover;
mod held_leases;
mod ours;
#[cfg(target_os = "linux")]
mod processors;
mod python;
mod redis;
mod service;
mod slow_commits;
mod sql;
mod zookeeper;

use std::{
    num::{NonZeroU64, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use clap::{Args, ValueEnum};

use self::{durable::DurableBench, service::Durable, sql::Database, zookeeper::ZooKeeper};
use super::{etcd::Gateway, report::Report};
use crate::output::Output;

pub use self::held_leases::HoldLeases;

/// How many clients wait for a lock that few want.
const FEW: usize = 2;
/// How long a holder is busy: long enough for the previous holder to wait again, and so short that the
/// code of a handover stays in the processor's caches.
const HOLD: Duration = Duration::from_millis(1);

#[derive(Args, Debug)]
pub struct LocksBench {
    /// The lock services to measure
    #[arg(long = "service", value_enum, value_delimiter = ',', default_values_t = Service::all())]
    services: Vec<Service>,
    /// How many rounds to split the measurements into: the speed of a machine changes over time
    #[arg(long, default_value = "5", value_name = "COUNT")]
    rounds: NonZeroUsize,
    #[command(flatten)]
    amounts: Amounts,
    /// Measure as one does whose commits are slow already
    #[arg(long, hide = true)]
    commits_are_slow: bool,
    #[command(flatten)]
    output: Output,
}

/// How much to measure. Some defaults are lower for services that make each answer durable.
#[derive(Args, Clone, Copy, Debug)]
struct Amounts {
    /// How often to acquire and release each kind of lock [default: 5000 on Redis, 500 elsewhere]
    #[arg(long, value_name = "COUNT")]
    acquires: Option<NonZeroUsize>,
    /// How often to hand over each kind of lock [default: 500 on Redis, 100 elsewhere]
    #[arg(long, value_name = "COUNT")]
    handovers: Option<NonZeroUsize>,
    /// How often to hand over each kind of lock whose waiters poll, on Redis
    #[arg(long, default_value = "100", value_name = "COUNT")]
    polled_handovers: NonZeroUsize,
    /// How many clients wait for a lock that many want
    #[arg(long, default_value = "100", value_name = "COUNT")]
    waiters: NonZeroUsize,
    /// How many leases one process holds at once
    #[arg(long, default_value = "10000", value_name = "COUNT")]
    leases: NonZeroUsize,
    /// How long the process holds them [default: 10 on Redis, 30 elsewhere]
    ///
    /// Their ttl is as long, and two fifths of this on Redis.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<NonZeroU64>,
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

impl LocksBench {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self { services, rounds, amounts, commits_are_slow, output } = self;
        let (rounds, mut reports) = (rounds.get(), Vec::new());
        for service in services {
            let service: Arc<dyn Durable> = match service {
                Service::Redis => {
                    reports.push(redis::measure(amounts, rounds).await?);
                    continue;
                }
                Service::Etcd => Arc::new(Gateway::start().await?),
                Service::ZooKeeper => Arc::new(ZooKeeper::start().await?),
                Service::Postgres => Arc::new(Database::postgres().await?),
                Service::MariaDb => Arc::new(Database::mariadb().await?),
                Service::Sqlite => Arc::new(Database::sqlite().await?),
            };
            let bench = DurableBench { service, amounts, rounds };
            reports.push(if commits_are_slow {
                bench.measure_for_parent().await?
            } else {
                bench.measure_twice().await?
            });
        }
        let mut report = Report::default();
        report.value("bench", "locks");
        report.value("services", &reports);
        let texts: Vec<_> = reports.iter().map(Report::to_string).collect();
        report.line(texts.join("\n\n"));
        output.print(&report)
    }
}
