//! What the command is told in its environment.

use std::{
    env,
    ffi::{OsStr, OsString},
};

use fence::{Holder, ResourceName, Token};
use tokio::process::Command;

use super::status::Event;
use crate::{
    Lease, Locks, Lost,
    backend::redis::has_password,
    cli::{Failure, handle::unix_millis_after},
};

const TOKEN: &str = "FENCING_TOKEN";
const HOLDER: &str = "FENCING_HOLDER";
const RESOURCE: &str = "FENCING_RESOURCE";
const DEADLINE_MS: &str = "FENCING_DEADLINE_MS";
/// Where `--redis` is read from, too.
const REDIS: &str = "FENCED_REDIS";

/// The variables that tell of a lease.
#[derive(Debug)]
pub(super) struct Variables {
    token: Token,
    holder: Holder,
    resource: ResourceName,
    /// Of the lease as first granted, in Unix time.
    deadline_ms: u64,
}

impl Variables {
    pub(super) fn of(lease: &Lease) -> Result<Self, Lost> {
        Ok(Self {
            token: lease.token()?,
            holder: lease.holder().clone(),
            resource: lease.name().clone(),
            deadline_ms: unix_millis_after(lease.remaining()),
        })
    }

    /// Sets them, whatever was inherited under their names.
    pub(super) fn set(&self, command: &mut Command) {
        command
            .env(TOKEN, self.token.to_string())
            .env(HOLDER, self.holder.as_str())
            .env(RESOURCE, self.resource.as_str())
            .env(DEADLINE_MS, self.deadline_ms.to_string());
    }

    pub(super) fn acquired(&self) -> Event<'_> {
        let Self { token, resource, deadline_ms, .. } = self;
        Event::Acquired { resource: resource.as_str(), token: *token, deadline_ms: *deadline_ms }
    }
}

/// Tells the command where Redis is, for another `run` or `status` under it: but no password.
pub(super) fn set_redis(command: &mut Command, url: &str) {
    if has_password(url) {
        command.env_remove(REDIS);
    } else {
        command.env(REDIS, url);
    }
}

/// A lock that a `run` above this one holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inherited {
    pub(super) token: Token,
    holder: Holder,
}

impl Inherited {
    /// Tells whether this runs under another `run` of the same name, by the variables that it set.
    pub(super) fn of(name: &ResourceName) -> Result<Option<Self>, Failure> {
        Self::from(name, env::var_os)
    }

    fn from(
        name: &ResourceName,
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Option<Self>, Failure> {
        if variable(RESOURCE).as_deref() != Some(OsStr::new(name.as_str())) {
            return Ok(None);
        }
        let (Some(token), Some(holder)) = (variable(TOKEN), variable(HOLDER)) else {
            return Ok(None);
        };
        let wrong = |variable| {
            Failure::Usage(format!(
                "{RESOURCE} says that this runs under the lock of {name}, and {variable} is wrong; \
                 unset both where this is not so"
            ))
        };
        let token = token.to_str().and_then(|token| token.parse().ok());
        let holder = holder.to_str().and_then(|holder| holder.parse().ok());
        Ok(Some(Self {
            token: token.ok_or_else(|| wrong(TOKEN))?,
            holder: holder.ok_or_else(|| wrong(HOLDER))?,
        }))
    }

    /// Asks the lock service whether the lock still belongs to that ownership. The token that it was
    /// granted with is its grant, which stays the same if the token is swapped for a higher one.
    pub(super) async fn is_held(
        &self,
        locks: &Locks,
        name: &ResourceName,
    ) -> Result<bool, Failure> {
        let status = locks.status(name).await?;
        Ok(status.held.is_some_and(|held| {
            held.ownership.holder == self.holder && held.ownership.grant == self.token
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(variables: &[(&str, &str)]) -> Result<Option<Inherited>, Failure> {
        let name = "r".parse().unwrap();
        Inherited::from(&name, |wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn only_a_lock_of_the_same_name_is_inherited() {
        let (token, holder) = ((TOKEN, "34"), (HOLDER, "0123456789abcdef"));
        let whole = inherited(&[(RESOURCE, "r"), token, holder]).unwrap().unwrap();
        assert_eq!((whole.token.as_u64(), whole.holder.as_str()), (34, "0123456789abcdef"));
        assert_eq!(inherited(&[(RESOURCE, "other"), token, holder]).unwrap(), None);
        assert_eq!(inherited(&[token, holder]).unwrap(), None);
        assert_eq!(inherited(&[(RESOURCE, "r"), token]).unwrap(), None);
    }

    #[test]
    fn variables_that_nobody_can_have_set_are_wrong_usage() {
        for token in ["", "0", "-1", "034", "1.5", "x"] {
            let wrong = inherited(&[(RESOURCE, "r"), (TOKEN, token), (HOLDER, "h")]).unwrap_err();
            assert_eq!(wrong.exit_code(), 64, "{token}");
            assert!(wrong.message().contains(TOKEN));
        }
    }
}
