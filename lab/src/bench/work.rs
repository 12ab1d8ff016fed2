//! What a server does for the locks, as counted by the server itself.

use std::{collections::BTreeMap, iter::Sum};

use anyhow::Context;
use redis::aio::MultiplexedConnection;
use testbed::Redis;

/// Reads the counters of one Redis.
#[derive(Debug)]
pub(super) struct Meter {
    connection: MultiplexedConnection,
}

impl Meter {
    pub(super) async fn connect(redis: &Redis) -> anyhow::Result<Self> {
        Ok(Self { connection: testbed::redis::connect(redis.url()).await? })
    }

    /// Returns the work since Redis started.
    pub(super) async fn read(&self) -> anyhow::Result<Work> {
        let mut connection = self.connection.clone();
        let info: String = redis::cmd("INFO").arg("all").query_async(&mut connection).await?;
        let mut work = Work::default();
        for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
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
}

/// What a server did since it started, or between two readings.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// How often each command was called, by clients and by scripts of Redis.
    pub(super) calls: BTreeMap<String, u64>,
    /// How often Redis read from a connection: an upper bound of the round trips of a client that
    /// awaits each answer.
    pub(super) reads: u64,
}

impl Work {
    /// The work of a server that tells its commands not apart.
    pub(super) fn of_commands(count: u64) -> Self {
        Self { calls: BTreeMap::from([("command".to_owned(), count)]), reads: 0 }
    }

    /// Returns the work after an earlier reading of the same meter, without the meter's own
    /// requests.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let calls = self
            .calls
            .iter()
            .map(|(command, calls)| (command.clone(), calls - earlier.calls_of(command)));
        let calls = calls.filter(|(command, calls)| *calls > 0 && command != "info").collect();
        Self { calls, reads: self.reads.saturating_sub(earlier.reads + 1) }
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
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        works.fold(Self::default(), |mut sum, work| {
            for (command, calls) in work.calls {
                *sum.calls.entry(command).or_default() += calls;
            }
            sum.reads += work.reads;
            sum
        })
    }
}
