//! `lab hammer`: many clients at one database, each believing that it holds the lock, to see whether
//! what protects the database holds.

mod history;
mod redis;
mod sql;

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
use fence::{Fence, Holder, ResourceName, Token};
use serde::Serialize;
use tokio::{task::JoinSet, time::sleep};

use self::history::{History, Read, Violations, Write};

/// How many resources the clients contend for.
const RESOURCES: usize = 2;
/// The longest that a client keeps a transaction open, in milliseconds.
const PAUSE_IN_TRANSACTION_MS: u64 = 3;
/// The longest that a client pauses between a transaction that reads and one that writes.
const PAUSE_MS: u64 = 12;

/// What to hammer at.
#[derive(Args, Debug)]
pub struct Hammer {
    /// postgres://…, mariadb://…, sqlite:FILE or redis://…, with the fence of `migrations` in it
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

    /// Removes what [`prepare`](Self::prepare) made.
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

/// What the clients came to at one isolation level.
#[derive(Clone, Debug, Default, Serialize)]
struct Figures {
    isolation: &'static str,
    writes: usize,
    refused: usize,
    tried_again: usize,
    #[serde(flatten)]
    violations: Violations,
}

#[derive(Debug, Serialize)]
struct Report {
    variant: Option<Variant>,
    clients: u16,
    seconds: u64,
    figures: Vec<Figures>,
    /// Whether the fence held; or, of a wrong way, whether it was caught.
    holds: bool,
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
        let anvil = self.anvil().await?;
        let run = format!("hammer/{}", &Holder::random().as_str()[..8]);
        let resources: Vec<ResourceName> = (0..RESOURCES)
            .map(|number| format!("{run}/{number}").parse())
            .collect::<Result<_, _>>()?;

        let mut figures = Vec::new();
        let mut first_token = 1;
        for isolation in anvil.isolation_levels() {
            anvil.prepare(&resources).await?;
            let hammered = tokio::select! {
                hammered = self.hammer(&*anvil, isolation, &resources, first_token) => hammered,
                interruption = &mut interrupted => Err(interruption),
            };
            anvil.clear(&resources).await?;
            let (hammered, next_token) = hammered?;
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

    async fn anvil(&self) -> anyhow::Result<Box<dyn Anvil>> {
        let (url, variant) = (&self.database, self.variant);
        match url.split([':', '+']).next() {
            Some("redis" | "unix") => Ok(Box::new(redis::Redis::open(url, variant).await?)),
            Some("postgres" | "postgresql" | "mariadb" | "mysql" | "sqlite") => {
                Ok(Box::new(sql::Sql::open(url, variant).await?))
            }
            _ => bail!("the URL begins with none of postgres:, mariadb:, sqlite: and redis:"),
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

/// What one client saw.
#[derive(Debug, Default)]
struct Tally {
    histories: [History; RESOURCES],
    refused: usize,
    tried_again: usize,
}

/// A client that acquires lock after lock, whoever else has one.
struct Striker {
    client: Box<dyn Client>,
    resources: Vec<ResourceName>,
    tokens: Arc<AtomicU64>,
    tally: Tally,
}

impl Striker {
    async fn strike(mut self, until: Instant) -> anyhow::Result<Tally> {
        while Instant::now() < until {
            let number = rand::random_range(0..RESOURCES);
            let token = Token::new(self.tokens.fetch_add(1, Ordering::Relaxed))?;
            let fence = Fence { token, holder: Holder::random() };
            let offer = Offer { resource: self.resources[number].clone(), fence };
            if rand::random() {
                self.in_one_transaction(number, &offer).await?;
            } else {
                self.in_a_transaction_each(number, &offer).await?;
            }
        }
        Ok(self.tally)
    }

    async fn in_one_transaction(&mut self, number: usize, offer: &Offer) -> anyhow::Result<()> {
        let attempt = self.client.increment(offer, pause(PAUSE_IN_TRANSACTION_MS)).await?;
        if let Some((seen, written)) = self.count(attempt) {
            self.note_read(number, offer, seen);
            self.note_write(number, offer, written);
        }
        Ok(())
    }

    /// Reads and writes with a pause in between, in which others get the lock; and may write again
    /// under the same token, from what it knows.
    async fn in_a_transaction_each(&mut self, number: usize, offer: &Offer) -> anyhow::Result<()> {
        let read = self.client.read(offer).await?;
        let Some(seen) = self.count(read) else {
            return Ok(());
        };
        self.note_read(number, offer, seen);
        for increments in seen.increments + 1..=seen.increments + rand::random_range(1..=2) {
            sleep(pause(PAUSE_MS)).await;
            let attempt = self.client.write(offer, increments).await?;
            let Some(written) = self.count(attempt) else {
                return Ok(());
            };
            self.note_write(number, offer, written);
        }
        Ok(())
    }

    fn count<T>(&mut self, attempt: Attempt<T>) -> Option<T> {
        match attempt {
            Attempt::Done(done) => return Some(done),
            Attempt::Refused => self.tally.refused += 1,
            Attempt::Again => self.tally.tried_again += 1,
        }
        None
    }

    fn note_read(&mut self, number: usize, offer: &Offer, Seen { state, .. }: Seen) {
        let token = offer.fence.token.as_u64();
        self.tally.histories[number].reads.push(Read { token, state });
    }

    fn note_write(&mut self, number: usize, offer: &Offer, written: Written) {
        let token = offer.fence.token.as_u64();
        let Written { state, replaced } = written;
        self.tally.histories[number].writes.push(Write { token, state, replaced });
    }
}

fn pause(at_most_ms: u64) -> Duration {
    Duration::from_millis(rand::random_range(0..=at_most_ms))
}

impl Report {
    fn table(&self) -> String {
        let way = match self.variant {
            None => "with the fence".to_owned(),
            Some(variant) => {
                let name = variant.to_possible_value().expect("none is skipped");
                format!("the wrong way '{}'", name.get_name())
            }
        };
        let mut text = format!(
            "{} clients, {} s at each isolation level, {way}\n\n\
             {:<18} {:>8} {:>8} {:>11} {:>13} {:>16} {:>16}\n",
            self.clients,
            self.seconds,
            "isolation",
            "writes",
            "refused",
            "tried again",
            "stale writes",
            "overtaken reads",
            "lost increments"
        );
        for Figures { isolation, writes, refused, tried_again, violations } in &self.figures {
            let Violations { stale_writes, overtaken_reads, lost_increments } = violations;
            text += &format!(
                "{isolation:<18} {writes:>8} {refused:>8} {tried_again:>11} {stale_writes:>13} \
                 {overtaken_reads:>16} {lost_increments:>16}\n"
            );
        }
        text += match (self.variant, self.holds) {
            (None, true) => "\nThe fence held.\n",
            (None, false) => "\nTHE FENCE DID NOT HOLD.\n",
            (Some(_), true) => "\nThe wrong way was caught.\n",
            (Some(_), false) => "\nThe wrong way was NOT caught in this run.\n",
        };
        text
    }
}
