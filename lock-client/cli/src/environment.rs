//! The environment variables by which `run` passes its lease to its command, and to a `run`,
//! `acquire` or `put` within it.

use std::{env, path::PathBuf, process::Command};

use fence::ResourceName;
use lock_client::{Lease, Locks, Lost, Ttl, backend::HeldLock};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::{
    failure::Failure,
    handle::{Handle, json_reason},
    stderr,
};

/// The leases of this `run` and its outer ones, as JSON: what a `run` within the command reads.
const OUTER: &str = "FENCING_OUTER";
/// The URLs of `--locks`.
const LOCKS: &str = "FENCED_LOCKS";

/// All but the characters that mean nothing in a URL or to curl, and the slash, which separates the
/// segments of the name. To curl, `[1-3]` means three URLs.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A lease, as the environment of a command has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct LeaseRecord {
    /// As it was first granted. The token stays the same after a reissue.
    #[serde(flatten)]
    pub(crate) handle: Handle,
    /// The address of the lock service, without passwords.
    lock_service: String,
    /// The file that has the present deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_file: Option<PathBuf>,
}

impl LeaseRecord {
    /// Records a lease as it is now.
    pub(crate) fn new(lease: &Lease, ttl: Ttl, locks: &Locks) -> Result<Self, Lost> {
        let handle = Handle::new(lease, ttl)?;
        Ok(Self { handle, lock_service: locks.address(), deadline_file: None })
    }

    /// Whether this lease has the lock that a status shows.
    pub(crate) fn owns(&self, held: Option<&HeldLock>) -> bool {
        // A lease of Redlock has other grants on the nodes that it joined. Its holder is new for every
        // round.
        held.is_some_and(|held| {
            held.ownership.holder == self.handle.holder
                && (held.nodes.is_some() || held.ownership.grant == self.handle.grant)
        })
    }
}

/// Encodes a name for the path of a URL.
fn percent_encoded(name: &ResourceName) -> String {
    utf8_percent_encode(name.as_str(), ENCODED).to_string()
}

/// Returns whether this process seems to be the command of a `run`.
pub(crate) fn is_under_run() -> bool {
    env::var_os(OUTER).is_some()
}

/// The leases of the outer `run`s, the innermost last. One may be of a lock of the same name in another lock
/// service, or be lost.
#[derive(Debug)]
pub(crate) struct OuterLeases(Vec<LeaseRecord>);

impl OuterLeases {
    /// Reads the variable that the next outer `run` has set, if there is one.
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        let Some(leases) = env::var_os(OUTER) else { return Ok(Self(Vec::new())) };
        let leases = serde_json::from_slice(leases.as_encoded_bytes());
        leases.map(Self).map_err(|error| {
            let reason = json_reason(&error);
            Failure::usage(format!(
                "{OUTER} is malformed ({reason}): `lock-client run` sets it for commands within it; \
                 if there is no such run, unset it"
            ))
        })
    }

    /// Sets the variables of a command that runs under one more lease. They replace inherited ones.
    /// `None` are URLs of the lock service that have a password, which is never passed on.
    pub(crate) fn set_variables(
        &self,
        command: &mut Command,
        lease: &LeaseRecord,
        urls: Option<&str>,
    ) {
        let all: Vec<_> = self.0.iter().chain([lease]).collect();
        let handle = &lease.handle;
        command
            .env("FENCING_TOKEN", handle.token.to_string())
            .env("FENCING_HOLDER", handle.holder.as_str())
            .env("FENCING_GRANT", handle.grant.to_string())
            .env("FENCING_RESOURCE", handle.name.as_str())
            .env("FENCING_RESOURCE_PATH", percent_encoded(&handle.name))
            .env("FENCING_DEADLINE_MS", handle.deadline_ms.to_string())
            .env("FENCING_LOCK_SERVICE", &lease.lock_service)
            .env(OUTER, serde_json::to_string(&all).expect("leases are plain JSON"));
        match urls {
            Some(urls) => command.env(LOCKS, urls),
            None => command.env_remove(LOCKS),
        };
    }

    /// Takes the lease that holds this lock out of the list, if there is one. Prints a message if the list has
    /// a lease of this lock that no longer holds it.
    ///
    /// A lock of the same name in another lock service is another lock. A service may have several
    /// addresses, so the present ownership decides: nobody can guess its holder.
    pub(crate) async fn take(
        &mut self,
        name: &ResourceName,
        locks: &Locks,
    ) -> Result<Option<LeaseRecord>, Failure> {
        if self.0.iter().all(|lease| lease.handle.name != *name) {
            return Ok(None);
        }
        let held = locks.status(name).await?.held;
        let is_owner =
            |lease: &LeaseRecord| lease.handle.name == *name && lease.owns(held.as_ref());
        let owner = self.0.iter().position(is_owner).map(|place| self.0.remove(place));
        let address = locks.address();
        let is_lost =
            |lease: &LeaseRecord| lease.handle.name == *name && lease.lock_service == address;
        if owner.is_none() && self.0.iter().any(is_lost) {
            stderr::print(format!(
                "{OUTER} names an outer `lock-client run {name}`, which does not hold this lock: it is \
                 acquired anew"
            ));
        }
        Ok(owner)
    }
}

/// Rejects a lock that an outer `run` holds: to acquire it would wait for that `run`, which waits
/// for this process. One that is no longer held may be acquired anew.
pub(crate) async fn reject_lock_of_outer_run(
    name: &ResourceName,
    locks: &Locks,
) -> Result<(), Failure> {
    match OuterLeases::from_environment()?.take(name, locks).await? {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!(
            "an outer `lock-client run {name}` holds this lock: write with its FENCING_TOKEN and \
             FENCING_HOLDER"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_encoded_for_the_path_of_a_url() {
        let encoded = |name: &str| percent_encoded(&name.parse().unwrap());
        assert_eq!(encoded("orders/42"), "orders/42");
        assert_eq!(encoded("a b#c?d%e"), "a%20b%23c%3Fd%25e");
        assert_eq!(encoded("a-b_c.d~e:@+&"), "a-b_c.d~e%3A%40%2B%26");
        assert_eq!(encoded("żółw"), "%C5%BC%C3%B3%C5%82w");
        assert_eq!(encoded(r#"[1-3]{a}\"<>`^|"#), "%5B1-3%5D%7Ba%7D%5C%22%3C%3E%60%5E%7C");
    }
}
