//! Which keys would survive a failover.

use ::redis::{RedisResult, aio::ConnectionLike};

use super::{facts::Facts, server::ask, unseen};
use crate::check::{Check, Verdict};

const PRIMARY: &str = "primary";
const REPLICAS: &str = "replicas";

/// Checks the server's role, and whether a replica may replace it.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn checks(
    connection: &mut impl ConnectionLike,
    facts: &Facts,
) -> RedisResult<Vec<Check>> {
    let is_clustered = facts.info("redis_mode") == Some("cluster");
    let mut checks = Vec::new();
    if is_clustered {
        checks.push(Check::bad(
            Verdict::Warning,
            "cluster",
            "one node of a Redis Cluster; the others were not examined",
            "the other nodes may have problems that this one does not have",
            "run this with the URL of each node: CLUSTER NODES lists them",
        ));
    }
    match facts.info("role") {
        Some("master") => {
            let promoter = match is_clustered {
                true => "the Cluster promotes one by itself",
                false if is_watched(connection).await? => "a Sentinel promotes one by itself",
                false => "no Sentinel was seen that promotes one by itself",
            };
            checks.extend([Check::ok(PRIMARY, "a primary"), replicas(facts, promoter)]);
        }
        Some("slave") => checks.push(replica(facts)),
        // The check of the version reports a Sentinel.
        Some(_) => {}
        None => checks.push(unseen(PRIMARY, facts.info_error())),
    }
    Ok(checks)
}

/// Returns whether a Sentinel subscribes to the channel on which Sentinels find each other.
async fn is_watched(connection: &mut impl ConnectionLike) -> RedisResult<bool> {
    let command = ::redis::cmd("PUBSUB").arg("NUMSUB").arg("__sentinel__:hello").to_owned();
    let listeners = ask::<(String, u64)>(connection, &command).await?;
    Ok(listeners.is_ok_and(|(_, listeners)| listeners > 0))
}

fn replicas(facts: &Facts, promoter: &str) -> Check {
    let Some(number) = facts.info("connected_slaves") else {
        return unseen(REPLICAS, facts.info_error());
    };
    if number == "0" {
        return Check::ok(REPLICAS, "none is connected");
    }
    // As in slave0:ip=127.0.0.1,port=6380,state=online,offset=42,lag=1.
    let mut lines: Vec<_> =
        facts.infos("slave").filter(|(_, line)| line.starts_with("ip=")).collect();
    lines.sort_unstable();
    let lines: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    let written = facts.info("master_repl_offset").unwrap_or("unknown");
    Check::bad(
        Verdict::UnfitForFence,
        REPLICAS,
        format!(
            "{number}, which are asynchronous: {}; written up to {written}; {promoter}",
            lines.join("; ")
        ),
        "a replica receives a change after its answer: a failover to one that has not received it accepts older tokens \
         again, or issues a token a second time; min-replicas-to-write does not prevent that",
        "promote no replica; for locks, use a majority of independent nodes without replicas (Redlock); until then, a \
         storage that checks the holder rejects the second holder of a token",
    )
}

fn replica(facts: &Facts) -> Check {
    let field = |name| facts.info(name).unwrap_or("unknown");
    let found = format!(
        "a replica; its primary is {}:{}, the link to it is {}; replica-read-only is {}",
        field("master_host"),
        field("master_port"),
        field("master_link_status"),
        field("slave_read_only")
    );
    Check::bad(
        Verdict::Unfit,
        PRIMARY,
        found,
        "nothing can be locked or written here; if it is not read-only, writes are lost when it next synchronises with \
         its primary, which issues the same tokens",
        "name the primary",
    )
}
