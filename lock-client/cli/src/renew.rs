//! `lock-client renew`.

use clap::Args;
use lock_client::{Locks, Terms, Ttl};

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
    #[arg(value_name = "HANDLE")]
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
        let ttl = self.ttl.map_or_else(|| handle.ttl(), Ok)?;
        let terms = Terms::new(ttl).without_renewal();
        let renew = async |locks: &Locks| {
            let lease = locks.adopt(handle.into_detached(ttl), terms).await?;
            let renewed = Handle::new(&lease, ttl);
            // The lock stays held, even if the new handle can't be printed: the old one is still
            // valid.
            lease.detach();
            print(&renewed?)
        };
        self.lock_service.with_locks(renew).await
    }
}
