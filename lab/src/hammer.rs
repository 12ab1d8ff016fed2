//! `lab hammer`: many clients write to one database, and each believes that it holds the lock.
//! Shows whether the fence protects the database.

mod client;
mod database;
mod history;
mod object_storage;
mod redis;
mod report;
mod sql;
mod storage_servers;

use std::{
    pin::pin,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use fence::{Holder, ResourceName};
use tokio::{task::JoinSet, time::timeout};

use self::{
    client::{Client, RESOURCES, Tally},
    database::{Database, Variant},
    history::History,
    report::{Figures, Report},
};
use crate::output::Output;

/// How long the clients may take to end their transactions after an interruption.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Which database to hammer at, and how.
#[derive(Args, Debug)]
pub struct Hammer {
    /// The database: postgres://…, mariadb://…, sqlite:FILE, redis://… (6.2 or newer),
    /// s3://BUCKET/PREFIX, az://CONTAINER/PREFIX, or http://… of a storage server
    ///
    /// URLs of several storage servers over one database are separated by commas.
    ///
    /// Append ?endpoint=URL for a server that is neither Amazon's nor Azure's. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
    /// AWS_REGION and so on are taken from the environment, for Azure AZURE_STORAGE_ACCOUNT_NAME and
    /// AZURE_STORAGE_ACCOUNT_KEY.
    ///
    /// The fence of `migrations` must be installed in it; connect as the role that installed the
    /// fence.
    #[arg(long, value_name = "URL")]
    database: String,
    /// How long to hammer at each isolation level
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many clients contend
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..))]
    clients: u16,
    /// Check tokens in a well-known wrong way instead of with the fence; the hammer must find it
    /// out
    #[arg(long)]
    variant: Option<Variant>,
    #[command(flatten)]
    output: Output,
}

impl Hammer {
    /// Hammers, and prints the figures. The exit code is 0 if the fence held, or if the wrong way
    /// was caught, and otherwise 1.
    ///
    /// # Errors
    /// If the hammer can't be run, or is interrupted. It removes its tables and fences all
    /// the same.
    pub async fn run(
        self,
        interrupted: impl Future<Output = anyhow::Error>,
    ) -> anyhow::Result<ExitCode> {
        let mut interrupted = pin!(interrupted);
        let run = Holder::random().as_str()[..8].to_owned();
        let resources: Vec<ResourceName> = (0..RESOURCES)
            .map(|number| format!("hammer/{run}/{number}").parse())
            .collect::<Result<_, _>>()?;
        let database = self.open_database(&run).await?;

        let mut figures = Vec::new();
        let mut first_token = 1;
        for isolation in database.isolation_levels() {
            let hammered = self
                .hammer_until_interrupted(
                    interrupted.as_mut(),
                    &*database,
                    isolation,
                    &resources,
                    first_token,
                )
                .await;
            let cleared = database.clear(&resources).await;
            let (hammered, next_token) = hammered?;
            cleared?;
            figures.push(hammered);
            first_token = next_token;
        }

        let violated = figures.iter().any(|figures| figures.violations.any());
        let Self { variant, clients, seconds, output, .. } = self;
        let holds = violated == variant.is_some();
        output.print(&Report { variant, clients, seconds, figures, holds })?;
        Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    async fn open_database(&self, run: &str) -> anyhow::Result<Box<dyn Database>> {
        let (url, variant) = (&self.database, self.variant);
        match url.split([':', '+']).next() {
            Some("s3" | "az") => {
                Ok(Box::new(object_storage::ObjectStorage::open(url, run, variant).await?))
            }
            _ if variant.is_some_and(Variant::is_for_object_storage) => {
                bail!("this variant is for object storage: the database URL begins with s3: or az:")
            }
            Some("http" | "https") => {
                Ok(Box::new(storage_servers::StorageServers::new(url, variant)?))
            }
            Some("redis" | "unix") => Ok(Box::new(redis::Redis::open(url, variant).await?)),
            Some("postgres" | "postgresql" | "mariadb" | "mysql" | "sqlite") => {
                Ok(Box::new(sql::Sql::open(url, run, variant).await?))
            }
            _ => bail!(
                "the URL begins with none of postgres:, mariadb:, mysql:, sqlite:, redis:, \
                 redis+unix:, s3:, az:, http: and https:"
            ),
        }
    }

    /// Hammers at one isolation level. If it is interrupted, the clients end their transactions
    /// first: a transaction that is cut off may still commit, after its fences were removed.
    async fn hammer_until_interrupted(
        &self,
        interrupted: impl Future<Output = anyhow::Error>,
        database: &dyn Database,
        isolation: &'static str,
        resources: &[ResourceName],
        first_token: u64,
    ) -> anyhow::Result<(Figures, u64)> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut hammered =
            pin!(self.hammer(database, isolation, resources, first_token, stop.clone()));
        tokio::select! {
            // Signals are caught first, before any table is created.
            biased;
            interruption = interrupted => {
                stop.store(true, Ordering::Relaxed);
                let _ = timeout(STOP_TIMEOUT, hammered).await;
                Err(interruption)
            }
            hammered = &mut hammered => hammered,
        }
    }

    /// Hammers at one isolation level, until the time is over or it must stop. Returns the figures
    /// and the next token.
    async fn hammer(
        &self,
        database: &dyn Database,
        isolation: &'static str,
        resources: &[ResourceName],
        first_token: u64,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<(Figures, u64)> {
        database.prepare(resources).await?;
        let next_token = Arc::new(AtomicU64::new(first_token));
        let mut ready = Vec::new();
        for _ in 0..self.clients {
            let connection = database.connect(isolation).await?;
            let (resources, next_token) = (resources.to_vec(), next_token.clone());
            ready.push(Client { connection, resources, next_token, tally: Tally::default() });
        }
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let mut clients: JoinSet<_> =
            ready.into_iter().map(|client| client.contend(until, stop.clone())).collect();

        let mut figures = Figures { isolation, ..Figures::default() };
        let mut histories = vec![History::default(); resources.len()];
        while let Some(tally) = clients.join_next().await {
            let tally = tally??;
            figures.rejected += tally.rejected;
            figures.tried_again += tally.tried_again;
            for (history, own) in histories.iter_mut().zip(tally.histories) {
                history.writes.extend(own.writes);
                history.reads.extend(own.reads);
                history.unknown += own.unknown;
                history.lost += own.lost;
            }
        }
        for (history, resource) in histories.iter_mut().zip(resources) {
            history.increments = database.increments(resource).await?;
            history.order = database.order();
            figures.writes += history.writes.len();
            figures.unknown += history.unknown;
            figures.violations += history.violations().context("the history makes no sense")?;
        }
        Ok((figures, next_token.load(Ordering::Relaxed)))
    }
}
