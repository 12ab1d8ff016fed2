//! `lock-client run`: a command under a lock.
//!
//! `new_lock` acquires the lock, runs the command and releases the lock; `reentry` runs the command
//! under a lock that an outer `run` holds. Both pass a `job` to `supervision`, which watches over
//! the child and the lease. `lost_lease` decides what happens to the child when the lease is lost.
//! `descendants` are the processes that the command has started; they keep the lock. `witness` shows
//! which signals they have received already.

mod arguments;
mod child;
mod command;
mod descendants;
mod events;
mod job;
#[cfg(target_os = "linux")]
mod launch;
mod lost_lease;
mod new_lock;
mod on_lost;
mod reaper;
mod reentry;
mod reporter;
mod status_fd;
mod supervision;
mod witness;

use std::ffi::OsString;

use lock_client::Locks;

pub(crate) use self::arguments::{Run, help};
#[cfg(target_os = "linux")]
pub(crate) use self::launch::Launched;
pub(crate) use self::witness::run_as_witness;
use self::{job::Job, reporter::Reporter, status_fd::StatusFd, witness::Witness};
use crate::{
    environment::OuterLeases,
    failure::Failure,
    signals::{FORWARDED, Signals},
};

impl Run {
    /// Runs the command. The leading arguments are those of this process before the command's own.
    pub(crate) async fn run(self, leading: &[OsString]) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        launch::check_requirements()?;
        let grace = on_lost::grace(self.kill_after.map(Into::into), self.first_ttl());
        let grace = grace.map_err(Failure::Usage)?;
        let status = StatusFd::open(self.status_fd)?;
        let mut outer = OuterLeases::from_environment()?;
        // Before signals are taken: a witness ignores those that were ignored from the start.
        let witness = Witness::start(leading)
            .map_err(|error| Failure::Unavailable(format!("can't start a process: {error}")))?;
        let signals = Signals::listen(FORWARDED)?;
        let mut reporter = Reporter::new(status);
        let run = async |locks: &Locks| {
            let command = command::Command::find(self.command.clone())
                .map_err(|reason| reporter.cannot_run(&reason))?;
            let same_lock = outer.take(&self.name, &self.lock_service, locks).await;
            let same_lock = same_lock.map_err(|failure| reporter.failed(failure))?;
            let urls = self.lock_service.urls_without_password();
            let close = self.close;
            let job =
                Job { command, close, grace, leading, urls, outer, reporter, signals, witness };
            match same_lock {
                None => new_lock::run(&self, locks, job).await,
                Some(outer) => reentry::run(&self.name, &outer, job).await,
            }
        };
        let lock_service = self.lock_service.clone().with_label(self.terms.label.clone());
        let lock_service = lock_service.keep_counter_for(self.terms.keep_counter_for);
        lock_service.with_locks(run).await
    }
}
