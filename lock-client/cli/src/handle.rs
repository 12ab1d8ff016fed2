//! A handle: a held lock as JSON, which a script passes from one command to the next.

use std::{
    io::{self, Read},
    str::FromStr,
    time::{Duration, SystemTime},
};

use fence::{Holder, ResourceName, Token};
use lock_client::{Detached, Lease, Lost, Ttl, backend::Ownership};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The longest handle, in bytes. Names and holders are short.
const MAX_LENGTH: u64 = 64 * 1024;

/// A held lock that no process renews. It is free when its ttl ends, unless renewed. The handle is
/// the proof of holding: any process that has it can renew and release the lock.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Handle {
    name: ResourceName,
    token: Token,
    holder: Holder,
    grant: Token,
    ttl_ms: u64,
    /// When the lease ends, in Unix time.
    deadline_ms: u64,
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
        ttl.map_err(|error| Failure::Usage(format!("the handle's ttl_ms is wrong: {error}")))
    }

    /// Turns the handle, with its ttl, into the lock that the library adopts.
    pub(crate) fn into_detached(self, ttl: Ttl) -> Detached {
        let ownership = Ownership { holder: self.holder, grant: self.grant };
        Detached { name: self.name, ownership, token: self.token, ttl }
    }
}

impl FromStr for Handle {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// A handle as an argument, or on stdin.
#[derive(Clone, Debug)]
pub(crate) enum HandleArgument {
    /// The handle itself.
    Given(Box<Handle>),
    /// `-`: the handle is on stdin.
    Stdin,
}

impl FromStr for HandleArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stdin);
        }
        let handle = text.parse().map_err(|error| {
            format!("a handle is the JSON that acquire or renew printed, not a name: {error}")
        })?;
        Ok(Self::Given(Box::new(handle)))
    }
}

impl HandleArgument {
    /// Returns the handle, which it reads from stdin if need be.
    pub(crate) fn read(self) -> Result<Handle, Failure> {
        if let Self::Given(handle) = self {
            return Ok(*handle);
        }
        let mut text = String::new();
        io::stdin()
            .take(MAX_LENGTH)
            .read_to_string(&mut text)
            .map_err(|error| Failure::Usage(format!("can't read stdin: {error}")))?;
        text.parse().map_err(|error| Failure::Usage(format!("stdin has no handle: {error}")))
    }
}

/// Returns the Unix time, in milliseconds, after a duration from now.
pub(crate) fn unix_millis_after(duration: Duration) -> u64 {
    let since_epoch =
        (SystemTime::now() + duration).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_millis().try_into().unwrap_or(u64::MAX)
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
        let handle: Handle = HANDLE.parse().unwrap();
        assert_eq!(serde_json::to_string(&handle).unwrap(), HANDLE);
        assert!(!format!("{handle:?}").contains("0123456789abcdef"), "the holder is redacted");
        let detached = handle.clone().into_detached(handle.ttl().unwrap());
        assert_eq!(detached.ownership.grant.as_u64(), 34);
    }

    #[test]
    fn malformed_handles_are_rejected() {
        for (from, to) in [("35", "0"), ("\"r\"", "\"a//b\""), ("\"grant\":34,", "")] {
            assert!(HANDLE.replace(from, to).parse::<Handle>().is_err(), "{from} {to}");
        }
        let short: Handle = HANDLE.replace("30000", "1").parse().unwrap();
        assert_eq!(short.ttl().unwrap_err().exit_code(), 64);
    }
}
