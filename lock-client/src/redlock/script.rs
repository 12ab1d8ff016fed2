//! The calls of the scripts that run on the nodes.

use fence::{Holder, Token};

use crate::{
    Ttl,
    backend::Ownership,
    redis::{
        keys::Keys,
        script::{Call, Script, script},
    },
};

static GRANT: Script = script!("../redis/counter.lua", "vote.lua", "grant.lua");
static JOIN: Script = script!("../redis/counter.lua", "vote.lua", "join.lua");
static SEAL: Script =
    script!("../redis/counter.lua", "raise_counter.lua", "vote.lua", "owned.lua", "seal.lua");
static RENEW: Script = script!("vote.lua", "owned.lua", "renew.lua");
static RAISE: Script = script!("../redis/counter.lua", "vote.lua", "owned.lua", "raise.lua");
static STATUS: Script = script!("vote.lua", "status.lua");
static RELEASE: Script = script!("raise_counter.lua", "vote.lua", "release.lua");

/// Grants the lock if it is free.
pub(super) fn grant(keys: &Keys, vote: &str, holder: &Holder, ttl: Ttl, start: u64) -> Call {
    voting(&GRANT, [keys.lock(), keys.counter(), Keys::NODE.to_owned()], vote)
        .arg(holder.as_str())
        .arg(ttl.as_millis())
        .arg(start)
}

/// Takes a free node for a lease that has this ownership and this token.
pub(super) fn join(
    keys: &Keys,
    vote: &str,
    lease: &Ownership,
    token: Token,
    ttl: Ttl,
    start: u64,
) -> Call {
    voting(&JOIN, [keys.lock(), keys.counter(), Keys::NODE.to_owned()], vote)
        .arg(lease.holder.as_str())
        .arg(ttl.as_millis())
        .arg(start)
        .arg(lease.grant.as_u64())
        .arg(token.as_u64())
}

/// Raises the counter to a token, if the lock on the node still belongs to the ownership `here`.
/// From then on, the node's ownership has the common grant.
pub(super) fn seal(
    keys: &Keys,
    vote: &str,
    here: &Ownership,
    common_grant: Token,
    token: Token,
) -> Call {
    voting(&SEAL, [keys.lock(), keys.counter(), Keys::NODE.to_owned()], vote)
        .arg(here.holder.as_str())
        .arg(here.grant.as_u64())
        .arg(common_grant.as_u64())
        .arg(token.as_u64())
}

/// Sets the full ttl.
pub(super) fn renew(keys: &Keys, vote: &str, ownership: &Ownership, ttl: Ttl) -> Call {
    voting(&RENEW, [keys.lock(), Keys::NODE.to_owned()], vote)
        .arg(ownership.holder.as_str())
        .arg(ownership.grant.as_u64())
        .arg(ttl.as_millis())
}

/// Raises the counter above a token.
pub(super) fn raise(
    keys: &Keys,
    vote: &str,
    ownership: &Ownership,
    above: Token,
    start: u64,
) -> Call {
    voting(&RAISE, [keys.lock(), keys.counter(), Keys::NODE.to_owned()], vote)
        .arg(ownership.holder.as_str())
        .arg(ownership.grant.as_u64())
        .arg(above.as_u64())
        .arg(start)
}

/// Reads the state of the lock and its counter.
pub(super) fn status(keys: &Keys, vote: &str) -> Call {
    voting(&STATUS, [keys.lock(), keys.counter(), Keys::NODE.to_owned()], vote)
}

/// Frees the lock if the holder has it, and raises the counter to a token, if one is given.
pub(super) fn release(keys: &Keys, vote: &str, holder: &Holder, raise_to: Option<Token>) -> Call {
    voting(&RELEASE, [keys.lock(), keys.counter(), Keys::NODE.to_owned()], vote)
        .arg(holder.as_str())
        .arg(raise_to.map_or(0, Token::as_u64))
        .arg(keys.freed())
}

fn voting(script: &'static Script, keys: impl Into<Vec<String>>, vote: &str) -> Call {
    script.with(keys).arg(vote)
}
