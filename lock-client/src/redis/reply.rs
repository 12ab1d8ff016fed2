//! The replies of the scripts.

use std::time::Duration;

use fence::{ResourceName, Token};

use super::keys::Keys;
use crate::backend::{HeldLock, Ownership, Status};

/// A reply, or a lock's value in Redis, that this crate's scripts never make.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidReply(String);

impl InvalidReply {
    pub(super) fn not_a_lock(name: &ResourceName) -> Self {
        Self(format!("{} holds no lock of ours", Keys::new(name).lock()))
    }
}

pub(crate) fn valid_token(number: i64) -> Result<Token, InvalidReply> {
    let invalid = |invalid| InvalidReply(format!("a reply is not a token: {invalid}"));
    Token::try_from(number).map_err(invalid)
}

/// Parses the reply of a script that compares the ownership: a token, or 0 if the lock has another
/// owner or none.
pub(super) fn token_of_owner(number: i64) -> Result<Option<Token>, InvalidReply> {
    if number == 0 { Ok(None) } else { valid_token(number).map(Some) }
}

/// Parses what PTTL returns. It is negative if the lock never expires.
pub(crate) fn remaining_time(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

pub(crate) type StatusReply = (Option<String>, i64, Option<u64>, u64);

pub(crate) fn status(
    name: &ResourceName,
    (lock, remaining, last_token, queued): StatusReply,
) -> Result<Status, InvalidReply> {
    let held = match lock {
        Some(lock) => {
            Some(held_lock(&lock, remaining).ok_or_else(|| InvalidReply::not_a_lock(name))?)
        }
        None => None,
    };
    Ok(Status { held, last_token, queued })
}

/// Parses the value of a lock's key: `TOKEN GRANT HOLDER SINCE LABEL`. The last two are missing on the
/// nodes of Redlock, and from older clients.
fn held_lock(lock: &str, remaining: i64) -> Option<HeldLock> {
    let mut parts = lock.splitn(5, ' ');
    let token = parts.next()?.parse().ok()?;
    let grant = parts.next()?.parse().ok()?;
    let holder = parts.next()?.parse().ok()?;
    Some(HeldLock {
        token,
        ownership: Ownership { holder, grant },
        remaining: remaining_time(remaining),
        since_ms: parts.next().and_then(|since| since.parse().ok()),
        label: parts.next().unwrap_or_default().to_owned(),
        nodes: None,
    })
}
