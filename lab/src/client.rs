//! The clients that scenarios drive, each a program that runs as a process of its own: of a table
//! (`shelf`), of a storage server (`writer`, and `naive_redlock` without tokens), of a lock alone (`worker`), and crowds of them (`buyers`,
//! `waiters`). They tell of their `steps`.

pub(crate) mod buyers;
pub(crate) mod naive_redlock;
pub(crate) mod shelf;
mod steps;
pub(crate) mod waiters;
pub(crate) mod worker;
pub(crate) mod writer;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

/// Somebody else holds the lock: an exit code.
pub(crate) const BUSY: u8 = 75;
/// The storage refused the token: an exit code.
pub(crate) const REFUSED: u8 = 80;

/// What to run as a client.
#[derive(Debug, Subcommand)]
pub enum Program {
    /// Works on a table of PostgreSQL, step by step
    #[command(hide = true)]
    ShelfClient(shelf::ShelfClient),
    /// Writes to a storage server under a lock, step by step
    #[command(hide = true)]
    Writer(writer::Writer),
    /// Writes to a storage server under a Redlock without tokens, step by step
    #[command(hide = true)]
    NaiveRedlock(naive_redlock::NaiveRedlock),
    /// Waits for a lock in a crowd
    #[command(hide = true)]
    Waiters(waiters::Waiters),
    /// Buys in a sale, step by step or in a crowd
    #[command(hide = true)]
    Buyers(buyers::Buyers),
    /// Takes a lock, works and gives it back, step by step
    #[command(hide = true)]
    Worker(worker::Worker),
}

impl Program {
    /// Runs it.
    ///
    /// # Errors
    /// If a server or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::ShelfClient(client) => client.run().await,
            Self::Writer(writer) => writer.run().await,
            Self::NaiveRedlock(client) => client.run().await,
            Self::Waiters(waiters) => waiters.run().await,
            Self::Buyers(buyers) => buyers.run().await,
            Self::Worker(worker) => worker.run().await,
        }
    }
}

/// A value as it stands on the command line.
pub(crate) fn as_argument(value: &impl ValueEnum) -> String {
    let argument = value.to_possible_value().expect("no value is left out");
    argument.get_name().to_owned()
}
