//! `lab power-loss`: what a power loss does to writes that the storage server has acknowledged, with
//! its settings and with careless ones.
//!
//! A `machine` has a disk, a database on it with a `setting`, and a storage server. A `load` writes
//! until the power fails, and then counts what is left.

mod careless_server;
mod load;
mod machine;
mod report;
mod setting;

use std::{ops::Range, process::ExitCode};

use anyhow::Context;
use clap::Args;
use futures_util::future::try_join_all;
use testbed::Unsynced;

pub use self::careless_server::CarelessServer;
use self::{
    load::{Counts, Load},
    machine::Machine,
    report::{Figures, Report},
    setting::Setting,
};
use crate::output::Output;

/// How many clients write at once.
const CLIENTS: usize = 8;
/// After how many further acknowledged writes the power fails.
const WRITES: Range<u64> = 50..300;

/// How often the power fails.
#[derive(Args, Debug)]
pub struct PowerLoss {
    /// How often the power fails, with each setting
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    losses: u32,
    #[command(flatten)]
    output: Output,
}

impl PowerLoss {
    /// Stages the losses with each setting, and prints the figures. The exit code is 0 if no write was
    /// lost with the server's settings, and some with each careless one; otherwise 1.
    ///
    /// # Errors
    /// If a server doesn't start or can't be asked.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let figures = Setting::ALL.map(async |setting| {
            let counts = lose_power_often(setting, self.losses).await;
            anyhow::Ok(Figures::new(setting, counts.with_context(|| setting.name())?))
        });
        // They mostly wait for starts.
        let report = Report::new(self.losses, try_join_all(figures).await?);
        self.output.print(&report)?;
        Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

async fn lose_power_often(setting: Setting, losses: u32) -> anyhow::Result<Counts> {
    let mut machine = Machine::new(setting).await?;
    let mut load = Load::new(CLIENTS)?;
    for loss in 0..losses {
        if setting.crashes_first() {
            crash_and_answer(&mut machine, &mut load).await?;
            let server = machine.start_server().await?;
            load.check(server.url()).await?;
            continue;
        }
        let server = machine.start_server().await?;
        let writing = load.start(server.url())?;
        // A server that has connected to PostgreSQL does not ask for its settings again.
        writing.acknowledges(WRITES.start).await?;
        machine.become_careless().await?;
        writing.acknowledges(rand::random_range(WRITES)).await?;
        // A system may have written any part of it before it was asked to sync. That may damage a
        // database with a careless setting beyond repair, so there everything is lost.
        let unsynced = match (setting.is_ours(), loss % 2) {
            (true, 1) => Unsynced::HalfLost,
            _ => Unsynced::Lost,
        };
        machine.lose_power(server, unsynced).await?;
        writing.stop(&mut load).await?;

        let server = machine.start_server().await?;
        load.check(server.url()).await?;
    }
    Ok(load.counts())
}

/// Crashes a server between its writes and their sync, lets another one answer repeated claims from what the
/// system has kept, and loses power.
async fn crash_and_answer(machine: &mut Machine, load: &mut Load) -> anyhow::Result<()> {
    let mut crashing = machine.start_server_that_will_crash().await?;
    let writing = load.start(crashing.url())?;
    writing.acknowledges(rand::random_range(WRITES)).await?;
    writing.stop(load).await?;
    crashing.process().kill()?;

    let answering = machine.start_server().await?;
    load.repeat_claims(answering.url()).await?;
    machine.lose_power(answering, Unsynced::Lost).await
}
