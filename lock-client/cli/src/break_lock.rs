//! `lock-client break`.

use clap::Args;
use fence::{ResourceName, Token};

use crate::{exit_code, failure::Failure, handle::parse_name, lock_service::LockService, stderr};

pub(crate) const HELP: &str = "\
It is for a lock whose holder is gone, or hangs, and whose ttl is long. The waiters are notified. A \
holder that still lives loses its lease at its next renewal; until then, the storage rejects its \
writes once the next holder has written.

Look at status or list first: the token names the holder that you mean. A lock that somebody else \
has acquired meanwhile stays, and the exit code is 75. A lock that is free already is a success, and \
reported on stderr.

Example:
  lock-client break deploy --token 1790000000033";

#[derive(Args, Debug)]
pub(crate) struct Break {
    /// The lock's name
    #[arg(value_parser = parse_name)]
    name: ResourceName,

    /// The holder's token, as status prints it
    #[arg(long, value_name = "TOKEN")]
    token: Token,
}

impl Break {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let Self { name, token } = self;
        let locks = lock_service.locks()?;
        if locks.break_lock(&name, token).await? {
            return Ok(());
        }
        match locks.status(&name).await?.held {
            Some(held) => {
                let reason = format!("lock `{name}` has another token: {}", held.token);
                Err(Failure::Message(exit_code::BUSY, reason))
            }
            None => {
                stderr::print(format!("lock `{name}` is free already"));
                Ok(())
            }
        }
    }
}
