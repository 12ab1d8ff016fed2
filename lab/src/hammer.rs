//! `lab hammer`: many clients at one database, each believing that it holds the lock, to see whether
//! what protects the database holds.

mod dialect;
mod history;
mod redis;
mod report;
mod sql;
mod striker;

use std::{
    pin::pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use async_trait::async_trait;
use clap::{Args, ValueEnum};
use fence::{Fence, Holder, ResourceName};
use serde::Serialize;
use tokio::task::JoinSet;

use self::{
    history::History,
    report::{Figures, Report},
    striker::{Striker, Tally},
};

/// How many resources the clients contend for.
const RESOURCES: usize = 2;
/// What to hammer at.
#[derive(Args, Debug)]
pub struct Hammer {
    /// postgres://…, mariadb://…, sqlite:FILE or redis://… (6.2 or newer), with the fence of `migrations`
    /// in it, as who installed that
    #[arg(long, value_name = "URL")]
    database: String,
    /// How long to hammer, at each isolation level
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many clients contend
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..))]
    clients: u16,
    /// Do it a well-known wrong way instead of with the fence, which has to be found
    #[arg(long)]
    variant: Option<Variant>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// The well-known wrong ways to check a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Variant {
    /// Update the data where the fence still has the token, by a subquery
    Exists,
    /// Select the fence's token, compare it in the program, then update the data
    SelectThenUpdate,
    /// Keep the token in the data's own row, and claim nothing before reading
    RowToken,
}

/// A database to hammer at.
#[async_trait]
trait Anvil: Sync {
    /// The isolation levels that it has, by name.
    fn isolation_levels(&self) -> &'static [&'static str];

    /// Makes the resources anew, without any writes.
    async fn prepare(&self, resources: &[ResourceName]) -> anyhow::Result<()>;

    /// Connects a client.
    async fn connect(&self, isolation: &str) -> anyhow::Result<Box<dyn Client>>;

    /// How many increments a resource has.
    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64>;

    /// Removes what [`prepare`](Self::prepare) has made, if it came to that.
    async fn clear(&self, resources: &[ResourceName]) -> anyhow::Result<()>;
}

/// A client of the database, which increments resources by reading, adding one and writing.
#[async_trait]
trait Client: Send {
    /// Claims and reads, in a transaction of its own.
    async fn read(&mut self, offer: &Offer) -> anyhow::Result<Attempt<Seen>>;

    /// Claims and writes, in a transaction of its own.
    async fn write(&mut self, offer: &Offer, increments: u64) -> anyhow::Result<Attempt<Written>>;

    /// Claims, reads, pauses and writes, in one transaction.
    async fn increment(
        &mut self,
        offer: &Offer,
        pause: Duration,
    ) -> anyhow::Result<Attempt<(Seen, Written)>>;
}

/// A resource, and what is offered for it.
#[derive(Debug)]
struct Offer {
    resource: ResourceName,
    fence: Fence,
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug)]
enum Attempt<T> {
    /// It was committed.
    Done(T),
    /// The token was refused.
    Refused,
    /// The database asks to try again: a deadlock, or a snapshot that is too old.
    Again,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    state: u64,
    increments: u64,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    state: u64,
    replaced: u64,
}

impl Hammer {
    /// Hammers, and prints what came of it. The exit code is 0 if the fence held, or the wrong way was
    /// caught; 1 if not.
    ///
    /// # Errors
    /// If it can't be run, or is interrupted. What it made in the database is removed all the same.
    pub async fn run(
        self,
        interrupted: impl Future<Output = anyhow::Error>,
    ) -> anyhow::Result<ExitCode> {
        let mut interrupted = pin!(interrupted);
        let run = Holder::random().as_str()[..8].to_owned();
        let resources: Vec<ResourceName> = (0..RESOURCES)
            .map(|number| format!("hammer/{run}/{number}").parse())
            .collect::<Result<_, _>>()?;
        let anvil = self.anvil(&run).await?;

        let mut figures = Vec::new();
        let mut first_token = 1;
        for isolation in anvil.isolation_levels() {
            let hammered = tokio::select! {
                // First, so that signals are caught before anything is made.
                biased;
                interruption = &mut interrupted => Err(interruption),
                hammered = self.hammer(&*anvil, isolation, &resources, first_token) => hammered,
            };
            let cleared = anvil.clear(&resources).await;
            let (hammered, next_token) = hammered?;
            cleared?;
            figures.push(hammered);
            first_token = next_token;
        }

        let violated = figures.iter().any(|figures| figures.violations.any());
        let Self { variant, clients, seconds, .. } = self;
        let holds = violated == variant.is_some();
        let report = Report { variant, clients, seconds, figures, holds };
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print!("{}", report.table());
        }
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    async fn anvil(&self, run: &str) -> anyhow::Result<Box<dyn Anvil>> {
        let (url, variant) = (&self.database, self.variant);
        match url.split([':', '+']).next() {
            Some("redis" | "unix") => Ok(Box::new(redis::Redis::open(url, variant).await?)),
            Some("postgres" | "postgresql" | "mariadb" | "mysql" | "sqlite") => {
                Ok(Box::new(sql::Sql::open(url, run, variant).await?))
            }
            _ => bail!(
                "the URL begins with none of postgres:, mariadb:, mysql:, sqlite:, redis: and redis+unix:"
            ),
        }
    }

    /// Lets the clients loose at one isolation level. Returns the next token too.
    async fn hammer(
        &self,
        anvil: &dyn Anvil,
        isolation: &'static str,
        resources: &[ResourceName],
        first_token: u64,
    ) -> anyhow::Result<(Figures, u64)> {
        anvil.prepare(resources).await?;
        let tokens = Arc::new(AtomicU64::new(first_token));
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let mut clients = JoinSet::new();
        for _ in 0..self.clients {
            let striker = Striker {
                client: anvil.connect(isolation).await?,
                resources: resources.to_vec(),
                tokens: tokens.clone(),
                tally: Tally::default(),
            };
            clients.spawn(striker.strike(until));
        }

        let mut figures = Figures { isolation, ..Figures::default() };
        let mut histories = vec![History::default(); resources.len()];
        while let Some(tally) = clients.join_next().await {
            let tally = tally??;
            figures.refused += tally.refused;
            figures.tried_again += tally.tried_again;
            for (history, own) in histories.iter_mut().zip(tally.histories) {
                history.writes.extend(own.writes);
                history.reads.extend(own.reads);
            }
        }
        for (history, resource) in histories.iter_mut().zip(resources) {
            history.increments = anvil.increments(resource).await?;
            figures.writes += history.writes.len();
            figures.violations += history.violations().context("the history makes no sense")?;
        }
        Ok((figures, tokens.load(Ordering::Relaxed)))
    }
}
