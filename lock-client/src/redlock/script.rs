//! The scripts of the nodes, and how they are called.

use fence::{Holder, Token};

use super::membership::{MEMBERSHIP_KEY, Membership};
use crate::Ttl;
use crate::backend::Ownership;
use crate::redis::keys::Keys;
use crate::redis::script::Call;
use crate::redis::script::Script;
use crate::redis::script::script;

static GRANT: Script = script!("../redis/counter.lua", "vote.lua", "grant.lua");
static SEAL: Script = script!("../redis/counter.lua", "lift.lua", "vote.lua", "seal.lua");
static RENEW: Script = script!("vote.lua", "renew.lua");
static RAISE: Script = script!("../redis/counter.lua", "vote.lua", "raise.lua");
static RELEASE: Script = script!("lift.lua", "vote.lua", "release.lua");

/// Takes the lock, if it is free.
pub(super) fn grant(
    keys: &Keys,
    voter: &Membership,
    holder: &Holder,
    ttl: Ttl,
    start: u64,
) -> Call {
    voting(&GRANT, [keys.lock(), keys.counter(), node()], voter)
        .arg(holder.as_str())
        .arg(ttl.as_millis())
        .arg(start)
}

/// Lifts the counter to a token, if the lock is still `here`'s; from then on it has the grant of all
/// nodes.
pub(super) fn seal(
    keys: &Keys,
    voter: &Membership,
    here: &Ownership,
    grant: Token,
    token: Token,
) -> Call {
    voting(&SEAL, [keys.lock(), keys.counter(), node()], voter)
        .arg(here.holder.as_str())
        .arg(here.grant.as_u64())
        .arg(grant.as_u64())
        .arg(token.as_u64())
}

/// Sets the full ttl.
pub(super) fn renew(keys: &Keys, voter: &Membership, ownership: &Ownership, ttl: Ttl) -> Call {
    voting(&RENEW, [keys.lock(), node()], voter)
        .arg(ownership.holder.as_str())
        .arg(ownership.grant.as_u64())
        .arg(ttl.as_millis())
}

/// Raises the counter above a token.
pub(super) fn raise(
    keys: &Keys,
    voter: &Membership,
    ownership: &Ownership,
    above: Token,
    start: u64,
) -> Call {
    voting(&RAISE, [keys.lock(), keys.counter(), node()], voter)
        .arg(ownership.holder.as_str())
        .arg(ownership.grant.as_u64())
        .arg(above.as_u64())
        .arg(start)
}

/// Frees the lock if it is the holder's, and lifts the counter.
pub(super) fn release(keys: &Keys, holder: &Holder, lift_to: Option<Token>) -> Call {
    RELEASE
        .with([keys.lock(), keys.counter()])
        .arg(holder.as_str())
        .arg(lift_to.map_or(0, Token::as_u64))
        .arg(keys.freed())
}

fn voting(script: &'static Script, keys: impl Into<Vec<String>>, voter: &Membership) -> Call {
    script.with(keys).arg(&voter.cluster).arg(&voter.run_id)
}

fn node() -> String {
    MEMBERSHIP_KEY.to_owned()
}
