//! A handle: a held lock as JSON, which a script passes from `acquire` to `renew` and `release`.

use std::{
    io::{self, Read},
    time::{Duration, SystemTime},
};

use clap::Args;
use fence::{Holder, ResourceName, Token};
use lock_client::{Detached, Lease, Locks, Lost, Terms, Ttl, backend::Ownership};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::{acquisition::parse_ttl, failure::Failure, lock_service::LockService, stdout::print};

/// The longest handle, in bytes. Names and holders are short.
const MAX_LENGTH: u64 = 64 * 1024;

/// The ttl of the renewal that checks whether the lock is still held.
const CHECK_TTL: Duration = Duration::from_secs(2);

/// A held lock that no process renews. It is free when its ttl ends, unless renewed. The handle is
/// the proof of holding: any process that has it can renew and release the lock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Handle {
    pub(crate) name: ResourceName,
    pub(crate) token: Token,
    pub(crate) holder: Holder,
    /// With the holder, it identifies the ownership.
    pub(crate) grant: Token,
    ttl_ms: u64,
    /// When the lease ends, in Unix time.
    pub(crate) deadline_ms: u64,
}

impl Handle {
    /// Makes the handle of a lease. The lock stays held.
    pub(crate) fn new(lease: &Lease, ttl: Ttl) -> Result<Self, Lost> {
        let Ownership { holder, grant } = lease.ownership().clone();
        Ok(Self {
            name: lease.name().clone(),
            token: lease.token()?,
            holder,
            grant,
            ttl_ms: ttl.as_millis(),
            deadline_ms: unix_millis_after(lease.remaining()),
        })
    }

    /// Ends a lease, and makes its handle, which has the highest token of the lease. The lock stays
    /// held, even if there is no handle.
    pub(crate) fn detach(lease: Lease, ttl: Ttl) -> Result<Self, Lost> {
        let handle = Self::new(&lease, ttl);
        match lease.detach() {
            Ok(detached) => Ok(Self { token: detached.token, ..handle? }),
            // Another clone keeps the lock.
            Err(_) => handle,
        }
    }

    /// How long each renewal grants the lock for.
    pub(crate) fn ttl(&self) -> Result<Ttl, Failure> {
        let ttl = Ttl::new(Duration::from_millis(self.ttl_ms));
        ttl.map_err(|error| Failure::usage(format!("the ttl_ms of the handle is wrong: {error}")))
    }

    /// Turns the handle, with its ttl, into the lock that the library adopts.
    pub(crate) fn into_detached(self, ttl: Ttl) -> Detached {
        let ownership = Ownership { holder: self.holder, grant: self.grant };
        Detached { name: self.name, ownership, token: self.token, ttl }
    }
}

/// Parses a handle: the argument, or stdin if it is `-`. The message must not show it: it has the
/// holder. A shell splits one without quotes if its name has a space, and clap would show the rest.
fn parse(argument: String) -> Result<Handle, Failure> {
    let text = match argument.as_str() {
        "-" => io::read_to_string(io::stdin().take(MAX_LENGTH))
            .map_err(|error| Failure::usage(format!("can't read stdin: {error}")))?,
        _ => argument,
    };
    serde_json::from_str(&text).map_err(|error| {
        let reason = json_reason(&error);
        Failure::usage(format!(
            "a handle is the JSON that acquire or renew printed, not a name: {reason}"
        ))
    })
}

/// Parses the name of a lock or a resource. Neither a handle nor the beginning of one may be printed.
pub(crate) fn parse_name(text: &str) -> Result<ResourceName, String> {
    if has_holder(text) {
        return Err("this is a handle, not a name: give the name that is in it".to_owned());
    }
    text.parse().map_err(|error: fence::InvalidName| error.to_string())
}

/// Whether this is a handle, or the beginning of one. A shell or `xargs` may have changed its quotes.
pub(crate) fn has_holder(text: &str) -> bool {
    text.replace(['"', '\'', '\\', ' '], "").contains(",holder:")
}

/// Why JSON that may have a holder can't be read. A value that is wrong, which may be the whole handle in
/// quotes, is not shown.
pub(crate) fn json_reason(error: &serde_json::Error) -> String {
    if error.is_data() {
        format!("a field is missing or wrong at line {} column {}", error.line(), error.column())
    } else {
        error.to_string()
    }
}

/// Returns the Unix time, in milliseconds, after a duration from now.
fn unix_millis_after(duration: Duration) -> u64 {
    let since_epoch =
        (SystemTime::now() + duration).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_millis().try_into().unwrap_or(u64::MAX)
}

#[derive(Args, Debug)]
pub(crate) struct Renew {
    /// The handle that acquire or renew printed; - reads it from stdin
    ///
    /// The handle does not name its lock service. At another one than that of --locks, the lease
    /// counts as lost.
    #[arg(required = true, value_name = "HANDLE|-")]
    handle: Vec<String>,

    /// How long the lock is granted for from now on [default: the ttl of the handle]
    #[arg(long, value_parser = parse_ttl, value_name = "DURATION")]
    ttl: Option<Ttl>,
}

impl Renew {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let handle = parse(self.handle.join(" "))?;
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
        lock_service.with_locks(renew).await
    }
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// The handle that acquire or renew printed; - reads it from stdin
    ///
    /// The handle does not name its lock service. At another one than that of --locks, the lease
    /// counts as lost.
    #[arg(required = true, value_name = "HANDLE|-")]
    handle: Vec<String>,
}

impl Release {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        let handle = parse(self.handle.join(" "))?;
        let ttl = handle.ttl()?.at_most(CHECK_TTL);
        // A renewal first shows whether the lock is still held. A release alone can't show that: if
        // its reply is lost, it is repeated, and then finds the lock free.
        let terms = Terms::new(ttl).without_renewal();
        // The service may have no such ttl, but the lock ends now. So it is that of the handle, too.
        let release = async |locks: &Locks| {
            locks.adopt(handle.into_detached(ttl), terms).await?.release().await?;
            Ok(())
        };
        lock_service.with_locks(release).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: &str = concat!(
        r#"{"name":"r","token":35,"holder":"0123456789abcdef","grant":34,"#,
        r#""ttl_ms":30000,"deadline_ms":1}"#
    );

    #[test]
    fn handle_is_parsed_as_it_was_printed() {
        let handle: Handle = serde_json::from_str(HANDLE).unwrap();
        assert_eq!(serde_json::to_string(&handle).unwrap(), HANDLE);
        assert!(!format!("{handle:?}").contains("0123456789abcdef"), "the holder is redacted");
        let detached = handle.clone().into_detached(handle.ttl().unwrap());
        assert_eq!(detached.ownership.grant.as_u64(), 34);
    }
}
