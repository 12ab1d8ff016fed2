//! `lock-client run`: a command under a lock.
//!
//! `new_lock` acquires the lock, runs the command and releases the lock; `reentry` runs the command
//! under a lock that an outer `run` holds. Both pass a `job` to `supervision`, which watches over
//! the child and the lease. `lost_lease` decides what happens to the child when the lease is lost.
//! `descendants` are the processes that the command has started; they keep the lock.

mod arguments;
mod child;
mod command;
mod descendants;
mod events;
mod guard;
mod job;
mod lost_lease;
mod new_lock;
mod on_lost;
mod reaper;
mod reentry;
mod reporter;
mod status_fd;
mod supervision;

use lock_client::Locks;

pub(crate) use self::arguments::{Run, help};
use self::{job::Job, reporter::Reporter, status_fd::StatusFd};
use crate::{
    environment::{OuterLease, OuterLeases, acquired_anew},
    failure::Failure,
    signals::{FORWARDED, Signals},
};

impl Run {
    /// Runs the command.
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let grace = on_lost::grace(self.kill_after.map(Into::into), self.first_ttl());
        let grace = grace.map_err(Failure::Usage)?;
        let status = StatusFd::open(self.status_fd)?;
        let mut outer = OuterLeases::from_environment()?;
        let signals = Signals::listen(FORWARDED)?;
        let mut reporter = Reporter::new(status);
        let run = async |locks: &Locks| {
            let command = command::Command::find(self.command.clone())
                .map_err(|reason| reporter.cannot_run(&reason))?;
            let same_lock = outer.take(&self.name, &self.lock_service, locks).await;
            let same_lock = same_lock.map_err(|failure| reporter.failed(failure))?;
            let urls = self.lock_service.urls_without_password();
            let close = self.close;
            let job = Job { command, close, grace, urls, outer, reporter, signals };
            match same_lock {
                Some(OuterLease { record, until: Some(until) }) => {
                    reentry::run(&self, locks, record, until, job).await
                }
                Some(OuterLease { until: None, .. }) => {
                    job.reporter.message(acquired_anew(&self.name));
                    new_lock::run(&self, locks, job).await
                }
                None => new_lock::run(&self, locks, job).await,
            }
        };
        let lock_service = self.lock_service.clone().with_label(self.terms.label.clone());
        let lock_service = lock_service.keep_counter_for(self.terms.keep_counter_for);
        lock_service.with_locks(run).await
    }
}
