//! Which keys would survive a failover.

use ::redis::{RedisResult, aio::ConnectionLike};

use super::{facts::Facts, server::ask, unseen};
use crate::check::{Check, Verdict};

const PRIMARY: &str = "primary";
const REPLICAS: &str = "replicas";
/// The longest lag that is normal. Replicas acknowledge once a second.
const LAG_SECONDS: u64 = 3;

/// Checks the server's role, and whether a replica may replace it.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn replication(
    connection: &mut impl ConnectionLike,
    facts: &Facts,
) -> RedisResult<Vec<Check>> {
    let mut checks: Vec<_> = one_node_of_a_cluster(facts).into_iter().collect();
    match facts.info("role") {
        Some("master") => {
            let promoter = match facts.info("redis_mode") {
                Some("cluster") => "the Cluster promotes one by itself",
                _ if is_watched(connection).await? => "a Sentinel promotes one by itself",
                _ => "no Sentinel was seen that promotes one by itself",
            };
            checks.push(Check::ok(PRIMARY, "a primary"));
            checks.push(replicas(facts, promoter));
            checks.extend(lagging(facts));
        }
        Some("slave") => checks.push(replica(facts)),
        // The check of the version reports a Sentinel.
        Some(_) => {}
        None => checks.push(unseen(PRIMARY, "its role", facts.info_rejection())),
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
    match facts.info("connected_slaves") {
        None => unseen(REPLICAS, "the number of replicas", facts.info_rejection()),
        Some("0") => Check::ok(REPLICAS, "none is connected"),
        Some(number) => Check::bad(
            Verdict::UnfitForFence,
            REPLICAS,
            format!("{number}, which are asynchronous; {promoter}"),
            "a replica receives a change after its answer: a failover to one that has not received it \
             accepts older tokens again, or issues a token a second time; min-replicas-to-write does not \
             prevent that",
            "promote no replica; for locks, use a majority of independent nodes without replicas (Redlock); \
             until then, a storage that checks the holder rejects the second holder of a token",
        ),
    }
}

fn lagging(facts: &Facts) -> Vec<Check> {
    let written = facts.info("master_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
    let mut replicas: Vec<_> =
        facts.infos("slave").filter_map(|(_, text)| Replica::parse(text)).collect();
    replicas.sort_unstable_by_key(|replica| replica.address.clone());
    let check = |replica: Replica| {
        let Replica { address, state, offset, lag } = replica;
        let behind = written.map_or(0, |written| written.saturating_sub(offset));
        let found = format!("replica {address} is {state}, {behind} bytes and {lag} s behind");
        if state == "online" && lag < LAG_SECONDS {
            return Check::ok("replica_lag", found);
        }
        let why = "the further it is behind, the more a failover to it loses";
        let cure = "repair its connection to the primary, or remove it";
        Check::bad(Verdict::Warning, "replica_lag", found, why, cure)
    };
    replicas.into_iter().map(check).collect()
}

/// A replica, as its primary reports it.
#[derive(Debug, PartialEq)]
struct Replica {
    address: String,
    state: String,
    /// The offset that it has acknowledged.
    offset: u64,
    /// How many seconds ago it acknowledged.
    lag: u64,
}

impl Replica {
    /// Parses `ip=127.0.0.1,port=6380,state=online,offset=42,lag=1`.
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = text.split(',').filter_map(|field| field.split_once('='));
            fields.find_map(|(field, value)| (field == name).then_some(value))
        };
        Some(Self {
            address: format!("{}:{}", field("ip")?, field("port")?),
            state: field("state")?.to_owned(),
            offset: field("offset")?.parse().ok()?,
            lag: field("lag")?.parse().ok()?,
        })
    }
}

fn replica(facts: &Facts) -> Check {
    let primary = facts.info("master_host").zip(facts.info("master_port"));
    let primary = primary.map_or("unknown".to_owned(), |(host, port)| format!("{host}:{port}"));
    let link = facts.info("master_link_status").unwrap_or("unknown");
    let mut found = format!("a replica; its primary is {primary}, the link to it is {link}");
    let mut why = "nothing can be locked or written here";
    if facts.info("slave_read_only") == Some("0") {
        found += ", and it accepts writes (replica-read-only no)";
        why = "writes to it are lost when it next synchronises with its primary, which issues the same tokens";
    }
    Check::bad(Verdict::Unfit, PRIMARY, found, why, "name the primary")
}

fn one_node_of_a_cluster(facts: &Facts) -> Option<Check> {
    (facts.info("redis_mode") == Some("cluster")).then(|| {
        Check::bad(
            Verdict::Warning,
            "cluster",
            "one node of a Redis Cluster; the others were not examined",
            "the other nodes may have problems that this one does not have",
            "run this with the URL of each node: CLUSTER NODES lists them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_of_each_replica_is_reported() {
        let info = "master_repl_offset:150\r\nslave_repl_offset:1\r\n\
                    slave0:ip=10.0.0.1,port=6379,state=online,offset=150,lag=0\r\n\
                    slave1:ip=10.0.0.2,port=6379,state=online,offset=40,lag=9\r\n\
                    slave2:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0";
        let checks = lagging(&Facts::new(info, &[]));
        let verdicts: Vec<_> = checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Warning, Verdict::Warning]);
        assert_eq!(checks[1].found, "replica 10.0.0.2:6379 is online, 110 bytes and 9 s behind");
    }
}
