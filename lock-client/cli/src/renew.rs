//! `lock-client renew`.

use clap::Args;

use super::{
    Failure, LockService,
    events::print,
    handle::{Handle, HandleArgument},
    ttl,
};
use lock_client::{Locks, Terms, Ttl};

#[derive(Args, Debug)]
pub(crate) struct Renew {
    /// The handle that acquire or renew has printed; - reads it from stdin
    #[arg(value_name = "HANDLE")]
    handle: HandleArgument,

    #[command(flatten)]
    lock_service: LockService,

    /// How long the lock is granted for from now [default: as long as it was]
    #[arg(long, value_parser = ttl, value_name = "DURATION")]
    ttl: Option<Ttl>,
}

impl Renew {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let handle = self.handle.read()?;
        let ttl = self.ttl.map_or_else(|| handle.ttl(), Ok)?;
        let terms = Terms::new(ttl).without_renewal();
        let renew = async |locks: &Locks| {
            let lease = locks.adopt(handle.into_detached(ttl), terms).await?;
            let renewed = Handle::of(&lease, ttl);
            // Whether or not it can be told, the lock is left to who has the handle.
            lease.detach();
            print(&renewed.map_err(|_| Failure::NotOurs)?)
        };
        self.lock_service.with_locks(renew).await
    }
}
