//! `lock-client renew`.

use clap::Args;
use lock_client::{Locks, Terms, Ttl};
use tokio::time::timeout;

use crate::{
    failure::Failure,
    handle::{Handle, HandleArgument},
    lock_service::LockService,
    parse,
    stdout::print,
};

#[derive(Args, Debug)]
pub(crate) struct Renew {
    /// The handle that acquire or renew printed; - reads it from stdin
    ///
    /// The handle does not name its lock service. At another one than that of --locks, the lease
    /// counts as lost.
    #[arg(value_name = "HANDLE|-")]
    handle: HandleArgument,

    #[command(flatten)]
    lock_service: LockService,

    /// How long the lock is granted for from now on [default: the ttl of the handle]
    #[arg(long, value_parser = parse::ttl, value_name = "DURATION")]
    ttl: Option<Ttl>,
}

impl Renew {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let handle = self.handle.read()?;
        let earlier_ttl = handle.ttl()?;
        let ttl = self.ttl.unwrap_or(earlier_ttl);
        let terms = Terms::new(ttl).without_renewal();
        let renew = async |locks: &Locks| {
            let lease = locks.adopt(handle.into_detached(earlier_ttl), terms).await?;
            // With Redlock, the renewal then takes nodes back. A handle counts those that were taken
            // back before it.
            let _ = timeout(lease.remaining() / 2, locks.wait_for_background()).await;
            print(&Handle::detach(lease, ttl)?)
        };
        self.lock_service.with_locks(renew).await
    }
}
