//! The client that scenarios drive: a process of its own, which reads commands from stdin.
//!
//! Its `setup` says which lock it takes and what it writes to. It reads a `command` per line,
//! does it for real, and prints each event as a JSON line: a `report`. A process may also be a
//! `crowd` of clients, each of which goes through the same commands.
//!
//! A `session` carries commands out, with one of the locks (`lease`, `key_lock`, `row_lock`, `advisory_lock`,
//! `naive_redlock`)
//! and one of the stores (`server`, `table`, `sale`). Its connections go through a `tap`, which notes what
//! really went over the wire.

mod advisory_lock;
pub(crate) mod command;
mod crowd;
pub(crate) mod key_lock;
mod lease;
mod lock;
mod naive_redlock;
pub(crate) mod report;
pub(crate) mod row_lock;
pub(crate) mod sale;
mod server;
mod session;
pub(crate) mod setup;
pub(crate) mod table;
mod tally;
mod tap;

use std::{io, process::ExitCode, thread};

use anyhow::Context;
use clap::Args;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::{command::Command, report::Report, session::Session, setup::Setup};

/// A client, or a crowd of clients.
#[derive(Args, Debug)]
pub struct Client {
    /// What the client connects to, as JSON
    #[arg(value_parser = |text: &str| serde_json::from_str::<Setup>(text))]
    setup: Setup,
}

impl Client {
    /// Connects, and carries out commands until stdin ends.
    ///
    /// # Errors
    /// If a server fails, or a line is not a command.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let mut lines = lines_of_stdin();
        if let Some(crowd) = self.setup.crowd {
            while let Some(line) = lines.recv().await {
                let commands: Vec<Command> = parse(&line?)?;
                Report::from(crowd::run(crowd, &self.setup, &commands).await?).print();
            }
        } else {
            let mut session = Session::connect(&self.setup).await?;
            while let Some(line) = lines.recv().await {
                session.carry_out(parse(&line?)?).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse<T: DeserializeOwned>(line: &str) -> anyhow::Result<T> {
    serde_json::from_str(line).with_context(|| format!("not a command: {line}"))
}

/// Reads stdin on a thread that the process does not wait for when it ends.
fn lines_of_stdin() -> UnboundedReceiver<io::Result<String>> {
    let (sender, receiver) = unbounded_channel();
    thread::spawn(move || io::stdin().lines().try_for_each(|line| sender.send(line)));
    receiver
}
