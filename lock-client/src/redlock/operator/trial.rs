//! Trials of the scripts on one node: a single vote, or all of them.

use fence::{Holder, ResourceName, Token};
use redis::{RedisResult, Value, from_redis_value};

use super::{
    Operator,
    peer::{Peer, PeerError},
};
use crate::{
    Ttl,
    backend::Ownership,
    redis::{
        keys::Keys,
        lacks_permission,
        line::Line,
        script::{Call, Script, script},
        transport::Transport,
        unix_millis,
    },
    redlock::{
        machines::votes::{Owned, OwnerReply},
        record::vote,
        script,
        state::State,
    },
};

/// The lock whose vote is tried.
const TRIAL: &str = "trial";

static TRY_VOTE: Script = script!("../vote.lua", "try_vote.lua");

/// Tries whether a node that may vote does so: it may answer and yet be read-only, its memory may be full, or
/// it may lack the replicas that it asks for. Returns its state, the reason, and whether it has another roster
/// than at the look, or no vote any more.
///
/// # Errors
/// The node does not answer any more.
pub(super) async fn try_vote(peer: &Peer) -> Result<(State, String, bool), PeerError> {
    let (keys, roster) = (Keys::reserved(TRIAL), peer.roster().expect("it may vote for one"));
    let vote = vote(roster, &peer.process);
    let trial = TRY_VOTE.with([keys.lock(), Keys::NODE.to_owned()]).arg(vote);
    let tried: RedisResult<()> = trial.in_full().query_async(&mut peer.connection.clone()).await;
    match tried {
        Ok(()) => Ok((State::Voting, String::new(), false)),
        Err(error) if error.code().is_none() => Err(peer.error(&error)),
        Err(error) if lacks_permission(&error.to_string()) => {
            Ok((State::Voting, format!("no vote was tried: {error}"), false))
        }
        Err(error) => {
            let is_outdated = matches!(error.code(), Some("OTHERROSTER" | "NOVOTE"));
            Ok((State::Rejecting, format!("{}: {error}", State::Rejecting.reason()), is_outdated))
        }
    }
}

/// Grants, seals, renews, raises, reads, releases and joins a lock on one node that may vote.
pub(super) async fn try_lock(
    operator: &Operator,
    node: &str,
    name: &ResourceName,
    ttl: Ttl,
) -> Result<(), String> {
    let peer = operator.connect_at(&[], node).await;
    let peer = peer.map_err(|error| format!("can't connect: {error}"))?;
    let roster = peer.roster().ok_or("it belongs to no cluster")?;
    if ttl.as_millis() > roster.max_ttl_ms {
        return Err(format!("can't take a lock: its cluster grants no ttl as long as {ttl}"));
    }
    let vote = &vote(roster, &peer.process);
    let (keys, holder) = (Keys::new(name), Holder::random());
    let mut line = Line::new(Transport::Node(peer.connection));
    let mut run = async |step: &str, call: Call| -> Result<Value, String> {
        line.run(&call).await.map_err(|error| format!("can't {step}: {error}"))
    };

    // 1. A lease from its first script to its last.
    let grant = script::grant(&keys, vote, &holder, ttl, unix_millis());
    let grant: i64 = from_redis_value(run("take a lock", grant).await?)
        .map_err(|error| format!("can't take a lock: {error}"))?;
    let grant = Token::try_from(grant).map_err(|error| error.to_string())?;
    let own = Ownership { holder: holder.clone(), grant };
    run("seal a token", script::seal(&keys, vote, &own, grant, grant)).await?;
    run("renew a lease", script::renew(&keys, vote, &own, ttl)).await?;
    run("raise a token", script::raise(&keys, vote, &own, grant, unix_millis())).await?;
    run("look at a lock", script::status(&keys, vote)).await?;
    run("release a lock", script::release(&keys, vote, &holder, None)).await?;

    // 2. Joins of the free node: its counter has reached the first token, and is below the second.
    let mut token = grant;
    for _ in 0..2 {
        let join = script::join(&keys, vote, &own, token, ttl, unix_millis());
        let joined = run("join a node", join).await?;
        let joined = from_redis_value(joined).map_err(|error| error.to_string())?;
        let OwnerReply::Owned(Owned { number: grant, .. }) = joined else {
            return Err("can't join a node: another client has the lock".to_owned());
        };
        run("release a lock", script::release(&keys, vote, &holder, Some(token))).await?;
        token = Token::new(grant.as_u64() + 1).map_err(|error| error.to_string())?;
    }
    Ok(())
}
