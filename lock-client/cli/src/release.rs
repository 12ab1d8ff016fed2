//! `lock-client release`.

use std::time::Duration;

use clap::Args;

use super::{Failure, LockService, handle::HandleArgument};
use lock_client::{Locks, Terms};

/// For how long the lock is renewed to find out whether it is ours.
const SHORT: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The handle that acquire or renew has printed; - reads it from stdin
    #[arg(value_name = "HANDLE")]
    handle: HandleArgument,

    #[command(flatten)]
    lock_service: LockService,
}

impl Release {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let handle = self.handle.read()?;
        let ttl = handle.ttl()?;
        // To renew it first tells whether it is ours. A release alone can't tell that, if its reply is
        // lost and it is repeated.
        let terms = Terms::new(ttl.at_most(SHORT)).without_renewal();
        let release = async |locks: &Locks| {
            locks.adopt(handle.into_detached(ttl), terms).await?.release().await?;
            Ok(())
        };
        self.lock_service.with_locks(release).await
    }
}
