//! The environment variables by which `run` passes its lease to its command, and to a `run`,
//! `acquire` or `put` within it.

use std::{env, path::PathBuf, process::Command};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Lease, Locks, Lost,
    backend::{HeldLock, Ownership},
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, handle::unix_millis_after, lock_service::LockService, stderr};

/// The leases of this `run` and its outer ones, as JSON: what a `run` within the command reads.
const OUTER: &str = "FENCING_OUTER";
/// The URLs of `--locks`.
const LOCKS: &str = "FENCED_LOCKS";

/// The characters that the path of a URL can't have as they are.
///
/// The client of the storage encodes these, and the slash, which here separates the segments of the
/// name. Brackets, `^` and `|` are encoded as well: to curl, `[1-3]` means three URLs.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A lease, as the environment of a command has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct LeaseRecord {
    pub(crate) resource: ResourceName,
    /// The first token. It stays the same after a reissue.
    pub(crate) token: Token,
    holder: Holder,
    /// With the holder, it identifies the ownership.
    grant: Token,
    /// The first deadline, in Unix time.
    pub(crate) deadline_ms: u64,
    /// The identity of the lock service, without passwords.
    lock_service: String,
    /// The file that has the present deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_file: Option<PathBuf>,
}

/// The lease of an outer `run`.
#[derive(Debug)]
pub(crate) struct OuterLease {
    pub(crate) record: LeaseRecord,
    /// Whether it still holds the lock.
    pub(crate) is_held: bool,
}

impl LeaseRecord {
    /// Records a lease as it is now.
    pub(crate) fn new(
        lease: &Lease,
        lock_service: &LockService,
        locks: &Locks,
    ) -> Result<Self, Lost> {
        let Ownership { holder, grant } = lease.ownership().clone();
        Ok(Self {
            resource: lease.name().clone(),
            token: lease.token()?,
            holder,
            grant,
            deadline_ms: unix_millis_after(lease.remaining()),
            lock_service: lock_service.identity(locks),
            deadline_file: None,
        })
    }

    /// Whether this lease has the lock that a status shows.
    pub(crate) fn owns(&self, held: Option<&HeldLock>) -> bool {
        // A lease of Redlock has other grants on the nodes that it joined. Its holder is new for every
        // round.
        held.is_some_and(|held| {
            held.ownership.holder == self.holder
                && (held.nodes.is_some() || held.ownership.grant == self.grant)
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

/// The leases of the outer `run`s, the innermost last. All locks are different.
#[derive(Debug)]
pub(crate) struct OuterLeases(Vec<LeaseRecord>);

impl OuterLeases {
    /// Reads the variable that the next outer `run` has set, if there is one.
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        let Some(leases) = env::var_os(OUTER) else { return Ok(Self(Vec::new())) };
        let leases = serde_json::from_slice(leases.as_encoded_bytes());
        leases.map(Self).map_err(|error| {
            Failure::Usage(format!(
                "{OUTER} is malformed ({error}): `lock-client run` sets it for commands within it; \
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
        command
            .env("FENCING_TOKEN", lease.token.to_string())
            .env("FENCING_HOLDER", lease.holder.as_str())
            .env("FENCING_GRANT", lease.grant.to_string())
            .env("FENCING_RESOURCE", lease.resource.as_str())
            .env("FENCING_RESOURCE_PATH", percent_encoded(&lease.resource))
            .env("FENCING_DEADLINE_MS", lease.deadline_ms.to_string())
            .env("FENCING_LOCK_SERVICE", &lease.lock_service)
            .env(OUTER, serde_json::to_string(&all).expect("leases are plain JSON"));
        match urls {
            Some(urls) => command.env(LOCKS, urls),
            None => command.env_remove(LOCKS),
        };
    }

    /// Takes the lease of this lock out of the list, if there is one.
    ///
    /// A lock of the same name in another lock service is another lock. A service may have several
    /// URLs, so the lock's present ownership decides first: nobody can guess its holder. If no
    /// lease is held, the lock of the service that is named alike was lost.
    pub(crate) async fn take(
        &mut self,
        name: &ResourceName,
        lock_service: &LockService,
        locks: &Locks,
    ) -> Result<Option<OuterLease>, Failure> {
        if self.0.iter().all(|lease| lease.resource != *name) {
            return Ok(None);
        }
        let held = locks.status(name).await?.held;
        Ok(self.take_from(name, &lock_service.identity(locks), held.as_ref()))
    }

    fn take_from(
        &mut self,
        name: &ResourceName,
        lock_service: &str,
        held: Option<&HeldLock>,
    ) -> Option<OuterLease> {
        let place = |is_it: &dyn Fn(&LeaseRecord) -> bool| {
            self.0.iter().position(|lease| lease.resource == *name && is_it(lease))
        };
        let owner = place(&|lease| lease.owns(held));
        let named_alike = || place(&|lease| lease.lock_service == lock_service);
        let record = self.0.remove(owner.or_else(named_alike)?);
        Some(OuterLease { record, is_held: owner.is_some() })
    }
}

/// Rejects a lock that an outer `run` holds: to acquire it would wait for that `run`, which waits
/// for this process. One that is no longer held may be acquired anew.
pub(crate) async fn reject_lock_of_outer_run(
    name: &ResourceName,
    lock_service: &LockService,
    locks: &Locks,
) -> Result<(), Failure> {
    match OuterLeases::from_environment()?.take(name, lock_service, locks).await? {
        None => Ok(()),
        Some(OuterLease { is_held: false, .. }) => {
            stderr::print(acquired_anew(name));
            Ok(())
        }
        Some(_) => Err(Failure::Usage(format!(
            "an outer `lock-client run {name}` holds this lock: write with its FENCING_TOKEN and \
             FENCING_HOLDER"
        ))),
    }
}

/// The message about a lock that an outer `run` no longer holds, or that one has left in the
/// environment.
pub(crate) fn acquired_anew(name: &ResourceName) -> String {
    format!(
        "{OUTER} names an outer `lock-client run {name}`, which no longer holds this lock: it is \
         acquired anew"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(token: u64) -> Token {
        Token::new(token).unwrap()
    }

    fn lease(resource: &str, lock_service: &str) -> LeaseRecord {
        LeaseRecord {
            resource: resource.parse().unwrap(),
            // That of a name that was reissued.
            token: token(90),
            holder: "0123456789abcdef".parse().unwrap(),
            grant: token(34),
            deadline_ms: 7,
            lock_service: lock_service.to_owned(),
            deadline_file: None,
        }
    }

    #[test]
    fn lock_of_the_same_name_is_found_by_its_ownership_or_its_lock_service() {
        let found = |service: &str, held: Option<(&str, u64)>| {
            let held = held.map(|(holder, grant)| HeldLock {
                token: token(grant),
                ownership: Ownership { holder: holder.parse().unwrap(), grant: token(grant) },
                remaining: None,
                since_ms: None,
                label: String::new(),
                nodes: None,
            });
            let here = "redis://a:6379/0";
            let mut leases = OuterLeases(vec![lease("other", here), lease("r", here)]);
            let found = leases.take_from(&"r".parse().unwrap(), service, held.as_ref());
            let left = if found.is_some() { 1 } else { 2 };
            assert_eq!(leases.0.len(), left);
            found.map(|lease| lease.is_held)
        };
        let ours = Some(("0123456789abcdef", 34));
        let others = Some(("fedcba9876543210", 34));
        assert_eq!(found("redis://a:6379/0", ours), Some(true));
        assert_eq!(found("redis://alias:6379/0", ours), Some(true), "the same, by another name");
        assert_eq!(found("redis://a:6379/0", others), Some(false), "it was lost");
        assert_eq!(found("redis://a:6379/0", Some(("0123456789abcdef", 35))), Some(false));
        assert_eq!(found("redis://a:6379/0", None), Some(false));
        assert_eq!(found("redis://b:6379/0", None), None, "another lock");
        assert_eq!(found("redis://b:6379/0", others), None);
    }

    #[test]
    fn name_is_encoded_for_the_path_of_a_url() {
        let encoded = |name: &str| percent_encoded(&name.parse().unwrap());
        assert_eq!(encoded("orders/42"), "orders/42");
        assert_eq!(encoded("a b#c?d%e"), "a%20b%23c%3Fd%25e");
        assert_eq!(encoded("żółw"), "%C5%BC%C3%B3%C5%82w");
        assert_eq!(encoded(r#"[1-3]{a}\"<>`^|"#), "%5B1-3%5D%7Ba%7D%5C%22%3C%3E%60%5E%7C");
    }
}
