//! `lock-client run`: a command under a lock.
//!
//! `new_lock` acquires the lock, runs the command and releases the lock; `reentry` runs the command
//! under a lock that an outer `run` holds. Both pass a `job` to `supervision`, which watches over
//! the child and the lease. `lost_lease` decides what happens to the child when the lease is lost.

mod arguments;
mod child;
mod command;
mod events;
mod job;
#[cfg(target_os = "linux")]
mod launch;
mod lost_lease;
mod new_lock;
mod on_lost;
mod reentry;
mod reporter;
mod status_fd;
mod supervision;

use std::ffi::OsString;

use lock_client::Locks;

pub(crate) use self::arguments::{Run, help};
#[cfg(target_os = "linux")]
pub(crate) use self::launch::Launched;
use self::{job::Job, reporter::Reporter, status_fd::StatusFd};
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
        let grace = on_lost::grace(self.kill_after.map(Into::into), self.terms.ttl);
        let grace = grace.map_err(Failure::Usage)?;
        let status = StatusFd::open(self.status_fd)?;
        let mut outer = OuterLeases::from_environment()?;
        let same_name = outer.take(&self.name);
        let signals = Signals::listen(FORWARDED)?;
        let mut reporter = Reporter::new(status);
        let run = async |locks: &Locks| {
            let command = command::Command::find(self.command.clone())
                .map_err(|reason| reporter.cannot_run(&reason))?;
            let urls = self.lock_service.urls();
            let job = Job { command, leading, urls, outer, reporter, signals };
            match same_name {
                None => new_lock::run(&self, grace, locks, job).await,
                Some(lease) => reentry::run(&self.name, &lease, locks, job).await,
            }
        };
        let lock_service = self.lock_service.clone().with_label(self.terms.label.clone());
        let lock_service = lock_service.keep_counter_for(self.terms.keep_counter_for);
        lock_service.with_locks(run).await
    }
}
