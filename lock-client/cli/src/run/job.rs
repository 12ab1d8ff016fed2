//! The command of `run`, with everything that it needs while it runs.

use std::{process::ExitStatus, time::Duration};

use rustix::process::Signal;

use super::{
    child::Child,
    command::{self, Command},
    descendants::Descendants,
    guard::Guard,
    reporter::Reporter,
    supervision::Supervision,
};
use crate::{
    environment::{LeaseRecord, OuterLeases, set_locks},
    failure::Failure,
    signals::Signals,
};

/// The command of `run`, with everything that it needs while it runs.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: Command,
    /// Whether the lock is released when the command itself has ended.
    pub(super) close: bool,
    /// The time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    /// The URLs of the lock service; `None` if one contains a password.
    pub(super) urls: Option<String>,
    /// The leases of outer `run`s with other names.
    pub(super) outer: OuterLeases,
    pub(super) reporter: Reporter,
    pub(super) signals: Signals,
}

impl Job {
    /// Starts the child with a lease in its environment, and supervises it until it ends.
    pub(super) async fn run(
        &mut self,
        lease: &LeaseRecord,
        guard: &mut Guard<'_>,
    ) -> Result<ExitStatus, Failure> {
        let Self { command, close, grace, urls, outer, reporter, signals } = self;
        let descendants = match Descendants::adopt() {
            // Only Linux lets a process adopt its descendants.
            _ if !cfg!(target_os = "linux") => None,
            // They are ended with a lost lease as far as they can be seen.
            Err(_) if *close => None,
            adopted => Some(adopted?),
        };
        let child = Child::spawn(command, descendants, |environment| {
            lease.set_variables(environment);
            outer.set_variable(environment);
            set_locks(environment, urls.as_deref());
        });
        let child = child
            .map_err(|error| reporter.cannot_run(&command::exec_error(&command.program, &error)))?;
        if !child.has_our_group() {
            signals.add(&[Signal::CONT, Signal::TSTP])?;
        }
        let (close, grace) = (*close, *grace);
        Supervision { child, guard, close, grace, reporter, signals }.run().await
    }
}
