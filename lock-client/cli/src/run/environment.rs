//! What the command is told in its environment.

use std::{env, ffi::OsString, fmt::Display};

use fence::{Holder, ResourceName, Token};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::status::Event;
use crate::{Failure, handle::unix_millis_after};
use lock_client::{Lease, Locks, Lost, redis::has_password};

const TOKEN: &str = "FENCING_TOKEN";
const HOLDER: &str = "FENCING_HOLDER";
const RESOURCE: &str = "FENCING_RESOURCE";
/// The name again, percent-encoded for the path of a URL.
const RESOURCE_PATH: &str = "FENCING_RESOURCE_PATH";
const DEADLINE_MS: &str = "FENCING_DEADLINE_MS";
/// The leases held above that one.
const OUTER: &str = "FENCING_OUTER";
/// Where `--redis` is read from, too.
const REDIS: &str = "FENCED_REDIS";

/// The characters to encode in the path of a URL. They are those that the client of the storage encodes,
/// without the slash, because a name has segments as a path has; and brackets and the circumflex, because
/// curl takes brackets for a range of URLs.
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

/// A lease as a command is told of it.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Told {
    resource: ResourceName,
    /// As first granted: the grant, which stays the same if the token is swapped for a higher one.
    pub(super) token: Token,
    holder: Holder,
    /// As first granted, in Unix time.
    deadline_ms: u64,
}

impl Told {
    pub(super) fn of(lease: &Lease) -> Result<Self, Lost> {
        Ok(Self {
            token: lease.token()?,
            holder: lease.holder().clone(),
            resource: lease.name().clone(),
            deadline_ms: unix_millis_after(lease.remaining()),
        })
    }

    /// Sets the variables that tell of it, whatever was inherited under their names.
    pub(super) fn set(&self, command: &mut Command) {
        command
            .env(TOKEN, self.token.to_string())
            .env(HOLDER, self.holder.as_str())
            .env(RESOURCE, self.resource.as_str())
            .env(RESOURCE_PATH, percent_encoded(&self.resource))
            .env(DEADLINE_MS, self.deadline_ms.to_string());
    }

    pub(super) fn acquired(&self) -> Event<'_> {
        let Self { token, resource, deadline_ms, .. } = self;
        Event::Acquired { resource: resource.as_str(), token: *token, deadline_ms: *deadline_ms }
    }

    /// Asks the lock service whether the lock still belongs to that ownership.
    pub(super) async fn is_held(&self, locks: &Locks) -> Result<bool, Failure> {
        let status = locks.status(&self.resource).await?;
        Ok(status.held.is_some_and(|held| {
            held.ownership.holder == self.holder && held.ownership.grant == self.token
        }))
    }
}

/// A name as the path of a URL has it.
fn percent_encoded(name: &ResourceName) -> String {
    utf8_percent_encode(name.as_str(), ENCODED).to_string()
}

/// Tells the command where Redis is, for another `run` or `status` under it: but no password.
pub(super) fn set_redis(command: &mut Command, urls: &[&str]) {
    if urls.iter().any(|url| has_password(url)) {
        command.env_remove(REDIS);
    } else {
        command.env(REDIS, urls.join(" "));
    }
}

/// The leases of the `run`s above this one, the innermost last. None has the name of another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inherited(Vec<Told>);

impl Inherited {
    /// Reads the variables that the `run` above has set, if there is one.
    pub(super) fn read() -> Result<Self, Failure> {
        Self::from(env::var_os)
    }

    fn from(variable: impl Fn(&'static str) -> Option<OsString>) -> Result<Self, Failure> {
        let text = |name| variable(name).map(|value| value.into_string().unwrap_or_default());
        let mut leases = match text(OUTER) {
            None => Vec::new(),
            Some(outer) => serde_json::from_str(&outer).map_err(|error| wrong(OUTER, &error))?,
        };
        if let (Some(resource), Some(token), Some(holder)) =
            (text(RESOURCE), text(TOKEN), text(HOLDER))
        {
            let deadline_ms = text(DEADLINE_MS).unwrap_or_default();
            leases.push(Told {
                resource: resource.parse().map_err(|error| wrong(RESOURCE, &error))?,
                token: token.parse().map_err(|error| wrong(TOKEN, &error))?,
                holder: holder.parse().map_err(|error| wrong(HOLDER, &error))?,
                deadline_ms: deadline_ms.parse().map_err(|error| wrong(DEADLINE_MS, &error))?,
            });
        }
        Ok(Self(leases))
    }

    /// Takes out the lease of a name, if there is one.
    pub(super) fn take(&mut self, name: &ResourceName) -> Option<Told> {
        let place = self.0.iter().position(|lease| lease.resource == *name)?;
        Some(self.0.remove(place))
    }

    /// Hands them down, as those that are held above the innermost lease.
    pub(super) fn set(&self, command: &mut Command) {
        if self.0.is_empty() {
            command.env_remove(OUTER);
        } else {
            command.env(OUTER, serde_json::to_string(&self.0).expect("leases are plain JSON"));
        }
    }
}

fn wrong(variable: &str, error: &dyn Display) -> Failure {
    Failure::Usage(format!(
        "{variable} is wrong, by which run tells a run under it what it holds ({error}); unset it, \
         and {RESOURCE}, where this runs under none"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: [(&str, &str); 4] =
        [(RESOURCE, "r"), (TOKEN, "34"), (HOLDER, "0123456789abcdef"), (DEADLINE_MS, "7")];
    const ABOVE: &str =
        r#"[{"resource":"above","token":5,"holder":"fedcba9876543210","deadline_ms":6}]"#;

    fn inherited(variables: &[(&str, &str)]) -> Result<Inherited, Failure> {
        Inherited::from(|wanted| {
            let found = variables.iter().rev().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn name_is_encoded_for_a_path() {
        let encoded = |name: &str| percent_encoded(&name.parse().unwrap());
        assert_eq!(encoded("orders/42"), "orders/42");
        assert_eq!(encoded("a b#c?d%e"), "a%20b%23c%3Fd%25e");
        assert_eq!(encoded("żółw"), "%C5%BC%C3%B3%C5%82w");
        assert_eq!(encoded(r#"[1-3]{a}\"<>`^|"#), "%5B1-3%5D%7Ba%7D%5C%22%3C%3E%60%5E%7C");
    }

    #[test]
    fn leases_are_found_by_their_names() {
        let mut leases = inherited(&[&WHOLE[..], &[(OUTER, ABOVE)]].concat()).unwrap();
        assert_eq!(leases.take(&"other".parse().unwrap()), None);
        let innermost = leases.take(&"r".parse().unwrap()).unwrap();
        assert_eq!((innermost.token.as_u64(), innermost.deadline_ms), (34, 7));
        assert_eq!(serde_json::to_string(&leases.0).unwrap(), ABOVE);
        assert_eq!(inherited(&WHOLE[1..]).unwrap().0, [], "no name is told");
        assert_eq!(inherited(&WHOLE[..2]).unwrap().0, [], "no holder is told");
    }

    #[test]
    fn variables_that_nobody_can_have_set_are_wrong_usage() {
        let tokens = ["", "0", "-1", "034", "1.5", "x"].map(|token| (TOKEN, token));
        let others = [(RESOURCE, "a//b"), (DEADLINE_MS, "soon"), (OUTER, ""), (OUTER, "[{}]")];
        for (variable, value) in tokens.into_iter().chain(others) {
            let wrong = inherited(&[&WHOLE[..], &[(variable, value)]].concat()).unwrap_err();
            assert_eq!(wrong.exit_code(), 64, "{variable}={value}");
            assert!(wrong.message().contains(variable));
        }
    }
}
