//! The command of `run`, with everything that it needs while it runs.

use std::{ffi::OsString, time::Duration};

use rustix::process::Signal;

use super::{
    child::Child,
    command::{self, Command},
    descendants::Descendants,
    events::Event,
    reporter::Reporter,
    supervision::{End, Guard, Supervision},
    witness::Witness,
};
use crate::{
    environment::{LeaseRecord, OuterLeases, set_locks},
    failure::Failure,
    signals::Signals,
};

/// The command of `run`, with everything that it needs while it runs.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) command: Command,
    /// Whether the lock is released when the command itself has ended.
    pub(super) close: bool,
    /// The time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    /// The arguments of this process before the command's own.
    pub(super) leading: &'a [OsString],
    /// The URLs of the lock service; `None` if one contains a password.
    pub(super) urls: Option<String>,
    /// The leases of outer `run`s with other names.
    pub(super) outer: OuterLeases,
    pub(super) reporter: Reporter,
    pub(super) signals: Signals,
    pub(super) witness: Witness,
}

impl Job<'_> {
    /// Starts the child with a lease in its environment, and supervises it until it ends. Without a
    /// guard, an outer `run` watches over the lease.
    pub(super) async fn run(
        &mut self,
        lease: &LeaseRecord,
        guard: Option<&mut Guard<'_>>,
    ) -> Result<End, Failure> {
        let Self { command, close, grace, leading, urls, outer, reporter, signals, witness } = self;
        signals.add(Signal::CONT)?;
        // Only Linux lets a process adopt its descendants.
        let waits = !*close && cfg!(target_os = "linux");
        let descendants = if waits { Some(Descendants::adopt()?) } else { None };
        let child = Child::spawn(command, leading, descendants, |environment| {
            lease.set_variables(environment);
            outer.set_variable(environment);
            set_locks(environment, urls.as_deref());
        });
        match child {
            Ok(child) => {
                // What the group received until now may have come before the child existed. A
                // signal that is forgotten here is forwarded.
                let _ = witness.received(Duration::MAX).await;
                let grace = *grace;
                let (term_at, group_term_at) = (None, None);
                let supervision = Supervision {
                    child,
                    command,
                    guard,
                    grace,
                    reporter,
                    signals,
                    witness,
                    term_at,
                    group_term_at,
                };
                supervision.run().await
            }
            Err(error) if Child::is_error_of_command(&error) => {
                Ok(End::NotRun(reporter.cannot_run(&command::exec_error(&command.program, &error))))
            }
            Err(error) => {
                let error = format!("can't start a process: {error}");
                reporter.event(&Event::CannotRun { error: &error });
                Err(Failure::Unavailable(error))
            }
        }
    }
}
