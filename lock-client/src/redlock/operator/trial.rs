//! Trials of the scripts on one node: a single vote, or all of them.

use std::time::Duration;

use fence::{Holder, ResourceName, Token};
use redis::{RedisResult, Value, from_redis_value};

use super::places::Places;
use crate::{
    Ttl,
    backend::Ownership,
    redis::{keys::Keys, line::Line, script::Call, transport::Transport, unix_millis},
    redlock::{membership::Membership, peer::Peer, reply::JoinReply, script},
};

/// The lock whose vote is tried. No client uses it.
const RESERVED: &str = "lock-client/node-status";
/// The ttl of that lock, if the cluster grants that much.
const TTL_MS: u64 = 1_000;

/// Asks a node that may vote for its vote, and takes it back. A node may answer and yet grant nothing:
/// it is read-only, its memory is full, or it lacks the replicas that it asks for.
///
/// # Errors
/// The reason why it grants nothing.
pub(super) async fn try_vote(peer: &mut Peer) -> Result<(), String> {
    let record = peer.record.clone().ok_or("it belongs to no cluster")?;
    let ttl = Duration::from_millis(record.epoch.max_ttl_ms.min(TTL_MS));
    let ttl = Ttl::new(ttl).map_err(|error| error.to_string())?;
    let run_id = peer.run_id.clone();
    let member = Membership { run_id, address: record.address, epoch: record.epoch };
    let keys = Keys::new(&RESERVED.parse().expect("it is a name"));
    let grant = script::grant(&keys, &member, &Holder::random(), ttl, unix_millis());
    // That another operator tries it at this moment proves as much.
    let granted: RedisResult<Value> = grant.in_full().query_async(&mut peer.connection).await;
    granted.map_err(|error| error.to_string())?;
    let mut delete = redis::cmd("DEL");
    delete.arg(keys.lock()).arg(keys.counter());
    delete.query_async(&mut peer.connection).await.map_err(|error| error.to_string())
}

/// Grants, seals, renews, raises, reads, releases and joins a lock on one node that may vote.
pub(super) async fn try_lock(
    places: &Places,
    node: &str,
    name: &ResourceName,
    ttl: Ttl,
) -> Result<(), String> {
    let peer = places.connect_at(node).await;
    let peer = peer.map_err(|error| format!("can't connect: {error}"))?;
    let record = peer.record.ok_or("it belongs to no cluster")?;
    let member = Membership { run_id: peer.run_id, address: record.address, epoch: record.epoch };
    if ttl.as_millis() > member.epoch.max_ttl_ms {
        return Err(format!("can't take a lock: its cluster grants no ttl as long as {ttl}"));
    }
    let (keys, holder) = (Keys::new(name), Holder::random());
    let mut line = Line::new(Transport::Node(peer.connection));
    let mut run = async |step: &str, call: Call| -> Result<Value, String> {
        line.run(&call).await.map_err(|error| format!("can't {step}: {error}"))
    };

    // 1. A lease from its first script to its last.
    let grant = script::grant(&keys, &member, &holder, ttl, unix_millis());
    let grant: i64 = from_redis_value(run("take a lock", grant).await?)
        .map_err(|error| format!("can't take a lock: {error}"))?;
    let grant = Token::try_from(grant).map_err(|error| error.to_string())?;
    let own = Ownership { holder: holder.clone(), grant };
    run("seal a token", script::seal(&keys, &member, &own, grant, grant)).await?;
    run("renew a lease", script::renew(&keys, &member, &own, ttl)).await?;
    run("raise a token", script::raise(&keys, &member, &own, grant, unix_millis())).await?;
    run("look at a lock", script::status(&keys, &member)).await?;
    run("release a lock", script::release(&keys, &holder, None)).await?;

    // 2. Joins of the free node: its counter has reached the first token, and is below the second.
    let mut token = grant;
    for _ in 0..2 {
        let join = script::join(&keys, &member, &own, token, ttl, unix_millis());
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
