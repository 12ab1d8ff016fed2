//! What Redis has to do for the locks, counted by Redis itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Sum,
    ops::AddAssign,
};

use anyhow::Context;
use redis::{AsyncCommands, aio::MultiplexedConnection};

use testbed::Redis;

/// Redis's own counters.
#[derive(Debug)]
pub(super) struct Meter {
    connection: MultiplexedConnection,
}

/// How often Redis did what, until a moment or between two.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// Calls of each command, those that scripts make included.
    calls: BTreeMap<String, u64>,
    /// How often there was something to read from a connection: an upper bound of the round trips of
    /// one client that awaits each answer.
    reads: u64,
}

impl Meter {
    pub(super) async fn connect(redis: &Redis) -> anyhow::Result<Self> {
        let client = redis::Client::open(redis.url())?;
        Ok(Self { connection: client.get_multiplexed_async_connection().await? })
    }

    /// The work since Redis started, but for what the meter itself caused.
    pub(super) async fn read(&mut self) -> anyhow::Result<Work> {
        let info: String = redis::cmd("INFO").arg("all").query_async(&mut self.connection).await?;
        Work::parse(&info)
    }

    /// How many keys match a pattern.
    pub(super) async fn keys(&mut self, pattern: &str) -> anyhow::Result<usize> {
        let mut found = self.connection.scan_match::<_, String>(pattern).await?;
        // A scan may come upon a key twice.
        let mut keys = BTreeSet::new();
        while let Some(key) = found.next_item().await {
            keys.insert(key?);
        }
        Ok(keys.len())
    }
}

impl Work {
    fn parse(info: &str) -> anyhow::Result<Self> {
        let mut work = Self::default();
        for line in info.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            if let Some(command) = key.strip_prefix("cmdstat_") {
                let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
                let calls = calls.context("a command has a number of calls")?.parse()?;
                work.calls.insert(command.to_owned(), calls);
            } else if key == "total_reads_processed" {
                work.reads = value.trim().parse()?;
            }
        }
        Ok(work)
    }

    /// What was done after an earlier reading of the same meter.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let before = |command| earlier.calls.get(command).copied().unwrap_or_default();
        let calls = self.calls.iter().filter_map(|(command, calls)| {
            let calls = calls - before(command);
            // That is the meter's own.
            (calls > 0 && command != "info").then(|| (command.clone(), calls))
        });
        Self { calls: calls.collect(), reads: self.reads.saturating_sub(earlier.reads + 1) }
    }

    /// The same without a command of which each was sent by itself.
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
        works.fold(Self::default(), |mut sum, work| {
            sum += work;
            sum
        })
    }
}
