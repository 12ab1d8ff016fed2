//! What Redis does for the locks, as counted by Redis itself.

use std::{collections::BTreeMap, iter::Sum, ops::AddAssign};

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use testbed::Redis;

/// Reads the counters of one Redis.
#[derive(Debug)]
pub(super) struct Meter {
    connection: MultiplexedConnection,
}

/// What Redis did since it started, or between two readings.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// How often each command was called, by clients and by scripts.
    calls: BTreeMap<String, u64>,
    /// How often Redis read from a connection: an upper bound of the round trips of a client that
    /// awaits each answer.
    reads: u64,
}

impl Meter {
    pub(super) async fn connect(redis: &Redis) -> anyhow::Result<Self> {
        Ok(Self { connection: testbed::redis::connect(redis.url()).await? })
    }

    /// Returns the work since Redis started.
    pub(super) async fn read(&mut self) -> anyhow::Result<Work> {
        let info: String = redis::cmd("INFO").arg("all").query_async(&mut self.connection).await?;
        Work::parse(&info)
    }
}

impl Work {
    fn parse(info: &str) -> anyhow::Result<Self> {
        let mut work = Self::default();
        for line in info.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            if let Some(command) = key.strip_prefix("cmdstat_") {
                let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
                let calls = calls.context("INFO shows no number of calls of a command")?.parse()?;
                work.calls.insert(command.to_owned(), calls);
            } else if key == "total_reads_processed" {
                work.reads = value.trim().parse()?;
            }
        }
        Ok(work)
    }

    /// Returns the work after an earlier reading of the same meter, without the meter's own
    /// requests.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |command| earlier.calls.get(command).copied().unwrap_or_default();
        let calls = self.calls.iter().filter_map(|(command, calls)| {
            let calls = calls - before(command);
            (calls > 0 && command != "info").then(|| (command.clone(), calls))
        });
        Self { calls: calls.collect(), reads: self.reads.saturating_sub(earlier.reads + 1) }
    }

    /// Leaves out a command that clients sent one at a time, so that each call was a read.
    pub(super) fn without(mut self, command: &str) -> Self {
        self.reads -= self.calls.remove(command).unwrap_or_default();
        self
    }

    pub(super) fn calls_of(&self, command: &str) -> u64 {
        self.calls.get(command).copied().unwrap_or_default()
    }

    pub(super) fn all_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    pub(super) fn calls(&self) -> &BTreeMap<String, u64> {
        &self.calls
    }

    pub(super) fn reads(&self) -> u64 {
        self.reads
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        for (command, calls) in other.calls {
            *self.calls.entry(command).or_default() += calls;
        }
        self.reads += other.reads;
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        let mut sum = Self::default();
        works.for_each(|work| sum += work);
        sum
    }
}
