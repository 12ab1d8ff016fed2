//! `lock-client acquire`.

use std::io;

use clap::Args;
use fence::ResourceName;
use lock_client::{Lease, Locks, Ttl};

use crate::{
    acquisition::{AcquireOptions, acquire},
    environment::reject_lock_of_outer_run,
    failure::{Failure, with_causes},
    handle::{Handle, parse_name},
    lock_service::LockService,
    signals::{FORWARDED, Signals},
    stderr,
    stdout::{self, print_unblocked},
};

pub(crate) const HELP: &str = "\
The handle is a JSON object: name, token, holder, grant, ttl_ms, and deadline_ms, when the lease \
ends in Unix time. It is the proof of holding: anyone who has it can renew and release the lock, \
and write in its holder's name. Pass it to renew and release on stdin, because other users can see \
arguments.

No process renews the lock: it is free when its ttl ends, unless renew is called before. Send the \
token and the holder with every write.

Example:
  handle=$(lock-client acquire nightly --ttl 10m --wait 1m) || exit
  ...
  handle=$(echo \"$handle\" | lock-client renew -) || exit
  ...
  echo \"$handle\" | lock-client release -";

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// The lock's name
    #[arg(value_parser = parse_name)]
    name: ResourceName,

    #[command(flatten)]
    options: AcquireOptions,
}

impl Acquire {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        // Nobody could release a lock without its handle.
        if stdout::is_closed() {
            return Err(Failure::cannot_print(io::Error::other(
                "stdout is closed, or is /dev/null for reading and writing; use > /dev/null to \
                 throw the handle away",
            )));
        }
        let lock_service = lock_service.with_options(&self.options);
        lock_service.with_locks(async |locks| self.acquire(locks).await).await
    }

    async fn acquire(&self, locks: &Locks) -> Result<(), Failure> {
        reject_lock_of_outer_run(&self.name, locks).await?;
        let mut signals = Signals::listen(FORWARDED)?;
        let terms = self.options.terms().without_renewal().detachable();
        let order = self.options.order();
        let lease = acquire(locks, &self.name, terms, order, &mut signals, None).await?;
        match print_handle(&lease, self.options.ttl, &mut signals).await {
            Ok(()) => {
                lease.detach().expect("the lock is detachable, and its lease has no clone");
                Ok(())
            }
            // Nobody could release a lock without its handle.
            Err(failure) => {
                if let Err(error) = lease.release().await {
                    let error = with_causes(&error);
                    stderr::print(format!("the lock may stay held until its ttl ends: {error}"));
                }
                Err(failure)
            }
        }
    }
}

async fn print_handle(lease: &Lease, ttl: Ttl, signals: &mut Signals) -> Result<(), Failure> {
    let handle = Handle::new(lease, ttl)?;
    tokio::select! {
        biased;
        printed = print_unblocked(&handle) => printed.map_err(Failure::cannot_print),
        signal = signals.next() => Err(signal.into()),
    }
}
