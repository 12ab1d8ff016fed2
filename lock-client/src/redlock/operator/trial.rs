//! Trials of the scripts on one node: a single vote, or all of them.

use std::time::Duration;

use fence::{Holder, ResourceName, Token};
use redis::{RedisResult, Value, from_redis_value};

use super::servers::Servers;
use crate::{
    Ttl,
    backend::Ownership,
    redis::{
        keys::Keys,
        line::Line,
        script::{Call, Script, script},
        transport::Transport,
        unix_millis,
    },
    redlock::{
        peer::{Peer, PeerError},
        record::vote,
        reply::JoinReply,
        script,
    },
};

/// The lock whose vote is tried.
const TRIAL: &str = "trial";
/// The ttl of that lock, if the cluster grants that much.
const TTL_MS: u64 = 1_000;

static UNDO_TRIAL: Script = script!("undo_trial.lua");

/// Asks a node that may vote for its vote, and takes it back. Returns why the node rejects all votes; a
/// node may answer and yet be read-only, its memory may be full, or it may lack the replicas that it
/// asks for. `None` if it grants, or if the user may not try it.
///
/// # Errors
/// The node does not answer any more.
pub(super) async fn try_vote(peer: &Peer) -> Result<Option<String>, PeerError> {
    let Some(roster) = peer.roster() else { return Ok(None) };
    let ttl = Ttl::new(Duration::from_millis(roster.max_ttl_ms.min(TTL_MS)));
    let Ok(ttl) = ttl else { return Ok(None) };
    let (keys, holder) = (Keys::reserved(TRIAL), Holder::random());
    let grant = script::grant(&keys, &vote(roster, &peer.process), &holder, ttl, unix_millis());
    let mut connection = peer.connection.clone();
    // That another operator has the lock at this moment proves as much.
    let granted: RedisResult<Value> = grant.in_full().query_async(&mut connection).await;
    if let Err(error) = granted {
        return match error.code() {
            Some("OOM" | "NOREPLICAS" | "READONLY" | "MISCONF") => Ok(Some(error.to_string())),
            Some(_) => Ok(None),
            None => Err(peer.error(&error)),
        };
    }
    let undo = UNDO_TRIAL.with([keys.lock(), keys.counter()]).arg(holder.as_str());
    let undone = undo.in_full().query_async(&mut connection).await;
    undone.map(|()| None).map_err(|error| peer.error(&error))
}

/// Grants, seals, renews, raises, reads, releases and joins a lock on one node that may vote.
pub(super) async fn try_lock(
    servers: &Servers,
    node: &str,
    name: &ResourceName,
    ttl: Ttl,
) -> Result<(), String> {
    let peer = servers.connect_at(node).await;
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
    run("release a lock", script::release(&keys, &holder, None)).await?;

    // 2. Joins of the free node: its counter has reached the first token, and is below the second.
    let mut token = grant;
    for _ in 0..2 {
        let join = script::join(&keys, vote, &own, token, ttl, unix_millis());
        let joined = run("join a node", join).await?;
        let joined = from_redis_value(joined).map_err(|error| error.to_string())?;
        let JoinReply::Joined { grant, .. } = joined else {
            return Err("can't join a node: another client has the lock".to_owned());
        };
        run("release a lock", script::release(&keys, &holder, Some(token))).await?;
        token = Token::new(grant.as_u64() + 1).map_err(|error| error.to_string())?;
    }
    Ok(())
}
