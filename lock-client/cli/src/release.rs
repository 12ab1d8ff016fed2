//! `lock-client release`.

use std::time::Duration;

use clap::Args;
use lock_client::{Locks, Terms};

use crate::{failure::Failure, handle::HandleArgument, lock_service::LockService};

/// The ttl of the renewal that checks whether the lock is still held.
const CHECK_TTL: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The handle that acquire or renew printed; - reads it from stdin
    ///
    /// The handle does not name its lock service. At another one than that of --locks, the lease
    /// counts as lost.
    #[arg(value_name = "HANDLE|-")]
    handle: HandleArgument,

    #[command(flatten)]
    lock_service: LockService,
}

impl Release {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let handle = self.handle.read()?;
        let ttl = handle.ttl()?.at_most(CHECK_TTL);
        // A renewal first shows whether the lock is still held. A release alone can't show that: if
        // its reply is lost, it is repeated, and then finds the lock free.
        let terms = Terms::new(ttl).without_renewal();
        // The service may have no such ttl, but the lock ends now. So it is that of the handle, too.
        let release = async |locks: &Locks| {
            locks.adopt(handle.into_detached(ttl), terms).await?.release().await?;
            Ok(())
        };
        self.lock_service.with_locks(release).await
    }
}
