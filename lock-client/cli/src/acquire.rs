//! `lock-client acquire`.

use clap::Args;
use fence::ResourceName;

use super::{
    Failure, LockService,
    events::{cannot_print, print_aside},
    handle::Handle,
    name,
    run::not_held_above,
    signals::{Signals, ended_by},
    terms::{TermsArgs, acquire},
};
use lock_client::{Lease, Locks, Ttl};

pub(crate) const HELP: &str = "\
The handle is a JSON object: name, token, holder, grant, ttl_ms, and deadline_ms (Unix time), until when \
the lock may be relied on. It is the proof of holding: whoever has it can renew and release the lock, \
and write in its holder's name. So give it to renew and release over stdin, as arguments can be seen.

Nothing renews the lock: it is free when its ttl is over, unless renew is called before. Send the token \
and the holder with every write.

Example:
  handle=$(lock-client acquire nightly --ttl 10m --wait 1m) || exit
  ...
  handle=$(echo \"$handle\" | lock-client renew -) || exit
  ...
  echo \"$handle\" | lock-client release -";

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// The lock's name
    #[arg(value_parser = name)]
    name: ResourceName,

    #[command(flatten)]
    lock_service: LockService,

    #[command(flatten)]
    terms: TermsArgs,
}

impl Acquire {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        not_held_above(&self.name)?;
        self.lock_service.with_locks(async |locks| self.acquire(locks).await).await
    }

    async fn acquire(&self, locks: &Locks) -> Result<(), Failure> {
        let mut signals = Signals::forwarded()?;
        let terms = self.terms.terms().without_renewal();
        let lease = acquire(locks, &self.name, terms, &mut signals).await?;
        match tell(&lease, self.terms.ttl, &mut signals).await {
            Ok(()) => {
                lease.detach();
                Ok(())
            }
            // A lock whose handle nobody has is of no use to anybody.
            Err(failure) => {
                if let Err(error) = lease.release().await {
                    eprintln!("lock-client: the lock was not released: {error}");
                }
                Err(failure)
            }
        }
    }
}

async fn tell(lease: &Lease, ttl: Ttl, signals: &mut Signals) -> Result<(), Failure> {
    let handle = Handle::of(lease, ttl).map_err(|_| Failure::NotOurs)?;
    tokio::select! {
        biased;
        printed = print_aside(&handle) => printed.map_err(|error| cannot_print(&error)),
        signal = signals.next() => Err(ended_by(signal)),
    }
}
