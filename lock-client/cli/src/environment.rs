//! The environment variables by which `run` passes its lease to its command, and to a `run`,
//! `acquire` or `put` within it.

use std::{env, ffi::OsString, fmt::Display, process::Command, time::Duration};

use fence::{Holder, ResourceName, Token};
use lock_client::{Lease, Locks, Lost, Moment, backend::HeldLock};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::{failure::Failure, handle::unix_millis_after, lock_service::LockService};

const TOKEN: &str = "FENCING_TOKEN";
const HOLDER: &str = "FENCING_HOLDER";
/// With the holder, it identifies the ownership.
const GRANT: &str = "FENCING_GRANT";
const RESOURCE: &str = "FENCING_RESOURCE";
/// The name again, percent-encoded for the path of a URL.
const RESOURCE_PATH: &str = "FENCING_RESOURCE_PATH";
const DEADLINE_MS: &str = "FENCING_DEADLINE_MS";
/// The lock service, without passwords.
const LOCK_SERVICE: &str = "FENCING_LOCK_SERVICE";
/// The leases of the outer `run`s, as JSON.
const OUTER: &str = "FENCING_OUTER";
/// The URLs of `--locks`.
const LOCKS: &str = "FENCED_LOCKS";

/// The time until a lock expires that never does: the longest ttl.
const NEVER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

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
    /// The grant. It differs from the first token if the name was reissued earlier. `None` means that it
    /// does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grant: Option<Token>,
    /// The first deadline, in Unix time.
    pub(crate) deadline_ms: u64,
    /// The identity of the lock service. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock_service: Option<String>,
}

/// The lease of an outer `run`.
#[derive(Debug)]
pub(crate) struct OuterLease {
    pub(crate) record: LeaseRecord,
    /// Until when it holds the lock, unless it is renewed; `None` if it no longer does.
    pub(crate) until: Option<Moment>,
}

impl LeaseRecord {
    /// Records a lease as it is now.
    pub(crate) fn new(
        lease: &Lease,
        lock_service: &LockService,
        locks: &Locks,
    ) -> Result<Self, Lost> {
        Ok(Self {
            token: lease.token()?,
            holder: lease.holder().clone(),
            grant: Some(lease.ownership().grant),
            resource: lease.name().clone(),
            deadline_ms: unix_millis_after(lease.remaining()),
            lock_service: Some(lock_service.identity(locks)),
        })
    }

    /// Returns until when this lease holds the lock, which a status showed that was asked for at a
    /// moment. `None` if another one holds it, or none.
    pub(crate) fn held_until(&self, asked: Moment, held: Option<&HeldLock>) -> Option<Moment> {
        let held = held?;
        // A lease of Redlock has other grants on the nodes that it joined. Its holder is new for every
        // round.
        let owns = held.ownership.holder == self.holder
            && (held.nodes.is_some() || held.ownership.grant == self.grant.unwrap_or(self.token));
        owns.then(|| asked + held.remaining.unwrap_or(NEVER))
    }

    /// Sets the variables of the lease. They replace inherited variables of the same names.
    pub(crate) fn set_variables(&self, command: &mut Command) {
        command
            .env(TOKEN, self.token.to_string())
            .env(HOLDER, self.holder.as_str())
            .env(RESOURCE, self.resource.as_str())
            .env(RESOURCE_PATH, percent_encoded(&self.resource))
            .env(DEADLINE_MS, self.deadline_ms.to_string());
        match self.grant {
            Some(grant) => command.env(GRANT, grant.to_string()),
            None => command.env_remove(GRANT),
        };
        match &self.lock_service {
            Some(lock_service) => command.env(LOCK_SERVICE, lock_service),
            None => command.env_remove(LOCK_SERVICE),
        };
    }
}

/// Encodes a name for the path of a URL.
fn percent_encoded(name: &ResourceName) -> String {
    utf8_percent_encode(name.as_str(), ENCODED).to_string()
}

/// Sets the URLs of the lock service, for another `run` or `status` within the command. `None` if one
/// contains a password, which is never passed on.
pub(crate) fn set_locks(command: &mut Command, urls: Option<&str>) {
    match urls {
        Some(urls) => command.env(LOCKS, urls),
        None => command.env_remove(LOCKS),
    };
}

/// Returns whether this process seems to be the command of a `run`.
pub(crate) fn is_under_run() -> bool {
    env::var_os(RESOURCE).is_some()
}

/// The leases of the outer `run`s, the innermost last. All locks are different.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OuterLeases(Vec<LeaseRecord>);

impl OuterLeases {
    /// Reads the variables that the next outer `run` has set, if there is one.
    pub(crate) fn from_environment() -> Result<Self, Failure> {
        Self::from_variables(env::var_os)
    }

    fn from_variables(
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let text = |name| variable(name).map(|value| value.into_string().unwrap_or_default());
        let mut leases = match text(OUTER) {
            None => Vec::new(),
            Some(outer) => {
                serde_json::from_str(&outer).map_err(|error| malformed(OUTER, &error))?
            }
        };
        if let (Some(resource), Some(token), Some(holder)) =
            (text(RESOURCE), text(TOKEN), text(HOLDER))
        {
            let deadline_ms = text(DEADLINE_MS).unwrap_or_default();
            let grant = text(GRANT).map(|grant| grant.parse()).transpose();
            leases.push(LeaseRecord {
                resource: resource.parse().map_err(|error| malformed(RESOURCE, &error))?,
                token: token.parse().map_err(|error| malformed(TOKEN, &error))?,
                holder: holder.parse().map_err(|error| malformed(HOLDER, &error))?,
                grant: grant.map_err(|error| malformed(GRANT, &error))?,
                deadline_ms: deadline_ms.parse().map_err(|error| malformed(DEADLINE_MS, &error))?,
                lock_service: text(LOCK_SERVICE),
            });
        }
        Ok(Self(leases))
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
        let asked = Moment::now();
        let held = locks.status(name).await?.held;
        Ok(self.take_from(name, &lock_service.identity(locks), asked, held.as_ref()))
    }

    fn take_from(
        &mut self,
        name: &ResourceName,
        lock_service: &str,
        asked: Moment,
        held: Option<&HeldLock>,
    ) -> Option<OuterLease> {
        let place = |is_it: &dyn Fn(&LeaseRecord) -> bool| {
            self.0.iter().position(|lease| lease.resource == *name && is_it(lease))
        };
        let owns = |lease: &LeaseRecord| lease.held_until(asked, held).is_some();
        let is_named_alike = |lease: &LeaseRecord| {
            lease.lock_service.as_deref().is_none_or(|named| named == lock_service)
        };
        let place = place(&owns).or_else(|| place(&is_named_alike))?;
        let record = self.0.remove(place);
        Some(OuterLease { until: record.held_until(asked, held), record })
    }

    /// Sets the variable of these leases, for a command that runs under yet another lease.
    pub(crate) fn set_variable(&self, command: &mut Command) {
        if self.0.is_empty() {
            command.env_remove(OUTER);
        } else {
            command.env(OUTER, serde_json::to_string(&self.0).expect("leases are plain JSON"));
        }
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
        Some(OuterLease { until: None, .. }) => {
            eprintln!("lock-client: {}", acquired_anew(name));
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
        "{RESOURCE} or {OUTER} names an outer `lock-client run {name}`, which no longer holds this \
         lock: it is acquired anew"
    )
}

fn malformed(variable: &str, error: &dyn Display) -> Failure {
    Failure::Usage(format!(
        "{variable} is malformed ({error}): `lock-client run` sets it for commands within it; if \
         there is no such run, unset it and {RESOURCE}"
    ))
}

#[cfg(test)]
mod tests {
    use lock_client::backend::Ownership;

    use super::*;

    /// The token is that of a name that was reissued.
    const WHOLE: [(&str, &str); 5] = [
        (RESOURCE, "r"),
        (TOKEN, "90"),
        (HOLDER, "0123456789abcdef"),
        (DEADLINE_MS, "7"),
        (GRANT, "34"),
    ];
    const OUTER_LEASES: &str =
        r#"[{"resource":"outer","token":5,"holder":"fedcba9876543210","deadline_ms":6}]"#;

    fn leases(variables: &[(&str, &str)]) -> Result<OuterLeases, Failure> {
        OuterLeases::from_variables(|wanted| {
            let found = variables.iter().rev().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn leases_are_found_by_their_names() {
        let mut leases_of_two = leases(&[&WHOLE[..], &[(OUTER, OUTER_LEASES)]].concat()).unwrap();
        assert!(
            leases_of_two
                .take_from(&"other".parse().unwrap(), "redis/0", Moment::now(), None)
                .is_none()
        );
        let innermost = leases_of_two
            .take_from(&"r".parse().unwrap(), "redis/0", Moment::now(), None)
            .unwrap()
            .record;
        assert_eq!((innermost.token.as_u64(), innermost.deadline_ms), (90, 7));
        assert_eq!(serde_json::to_string(&leases_of_two.0).unwrap(), OUTER_LEASES);
        assert_eq!(leases(&WHOLE[1..]).unwrap().0, [], "the name is missing");
        assert_eq!(leases(&WHOLE[..2]).unwrap().0, [], "the holder is missing");
    }

    #[test]
    fn lock_of_the_same_name_is_found_by_its_ownership_or_its_lock_service() {
        let found = |service: &str, held: Option<(&str, u64)>| {
            let named = [&WHOLE[..], &[(LOCK_SERVICE, "redis://a:6379/0")]].concat();
            let held = held.map(|(holder, grant)| HeldLock {
                token: Token::new(grant).unwrap(),
                ownership: Ownership {
                    holder: holder.parse().unwrap(),
                    grant: Token::new(grant).unwrap(),
                },
                remaining: None,
                since_ms: None,
                label: String::new(),
                nodes: None,
            });
            let found = leases(&named).unwrap().take_from(
                &"r".parse().unwrap(),
                service,
                Moment::now(),
                held.as_ref(),
            );
            found.map(|lease| lease.until.is_some())
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
    fn variables_that_no_run_has_set_are_wrong_usage() {
        let tokens = ["", "0", "-1", "034", "1.5", "x"].map(|token| (TOKEN, token));
        let others =
            [(GRANT, "x"), (RESOURCE, "a//b"), (DEADLINE_MS, "soon"), (OUTER, ""), (OUTER, "[{}]")];
        for (variable, value) in tokens.into_iter().chain(others) {
            let failure = leases(&[&WHOLE[..], &[(variable, value)]].concat()).unwrap_err();
            assert_eq!(failure.exit_code(), 64, "{variable}={value}");
            assert!(failure.message().unwrap().contains(variable));
        }
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
