//! Which counters would survive a failover.

use redis::{RedisResult, aio::ConnectionLike};

use super::{
    connection::ask,
    facts::Facts,
    finding::{Cure, Finding, Severity},
};

const CHECK: &str = "replication";
/// The longest lag that is normal. Replicas acknowledge once a second.
const LAG_SECONDS: u64 = 3;

/// Checks the server's role, and whether a replica may replace it.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn replication(
    connection: &mut impl ConnectionLike,
    facts: &Facts,
) -> RedisResult<Vec<Finding>> {
    let mut findings: Vec<_> = one_node_of_a_cluster(facts).into_iter().collect();
    match facts.info("role") {
        Some("master") => {
            let promoter = match facts.info("redis_mode") {
                Some("cluster") => "the Cluster promotes one by itself",
                _ if is_watched(connection).await? => "a Sentinel promotes one by itself",
                _ => "no Sentinel was seen that promotes one by itself",
            };
            findings.push(replicas(facts, promoter));
            findings.extend(lagging(facts));
        }
        Some("slave") => findings.push(replica(facts)),
        // The version check reports a Sentinel.
        Some(_) => {}
        None => findings.push(Finding::unseen(
            Severity::Unseen,
            CHECK,
            "its role",
            facts.info_rejection(),
        )),
    }
    Ok(findings)
}

/// The same for a node of a Redlock cluster. A promoted replica is another process, which has no
/// vote.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn node_replication(
    connection: &mut impl ConnectionLike,
    facts: &Facts,
) -> RedisResult<Vec<Finding>> {
    let mut findings = replication(connection, facts).await?;
    if facts.info("role") != Some("master") {
        return Ok(findings);
    }
    for finding in findings.iter_mut().filter(|finding| finding.severity != Severity::Ok) {
        finding.severity = Severity::Warning;
        finding.endangers = Some(
            "no token: but a promoted replica has no vote until `lock-client node admit`, because \
             it may not have received all grants",
        );
        finding.cure =
            Some(Cure::advice("run the node without replicas: the other nodes replace it"));
    }
    Ok(findings)
}

/// Returns whether a Sentinel subscribes to the channel on which Sentinels find each other.
async fn is_watched(connection: &mut impl ConnectionLike) -> RedisResult<bool> {
    let command = redis::cmd("PUBSUB").arg("NUMSUB").arg("__sentinel__:hello").to_owned();
    let listeners = ask::<(String, u64)>(connection, &command).await?;
    Ok(listeners.is_ok_and(|(_, listeners)| listeners > 0))
}

fn replicas(facts: &Facts, promoter: &str) -> Finding {
    match facts.info("connected_slaves") {
        None => Finding::unseen(
            Severity::Unseen,
            CHECK,
            "the number of replicas",
            facts.info_rejection(),
        ),
        Some("0") => Finding::ok(CHECK, "a primary without replicas"),
        Some(number) => Finding::bad(
            Severity::TokenLoss,
            CHECK,
            format!("a primary with replicas: {number}; {promoter}"),
            "replicas receive a grant after its answer: a failover to one that has not received it \
             issues the token a second time, and min-replicas-to-write does not prevent that",
            Cure::advice(
                "keep the locks on a majority of independent nodes without replicas (Redlock), or \
                 promote no replica; until then, the fence protects: the storage rejects the \
                 second holder of a token as a holder conflict",
            ),
        ),
    }
}

fn lagging(facts: &Facts) -> Vec<Finding> {
    let written = facts.info("master_repl_offset").and_then(|offset| offset.parse::<u64>().ok());
    let mut replicas: Vec<_> =
        facts.infos("slave").filter_map(|(_, text)| Replica::parse(text)).collect();
    replicas.sort_unstable_by_key(|replica| replica.address.clone());
    let finding = |replica: Replica| {
        let Replica { address, state, offset, lag } = replica;
        let behind = written.map_or(0, |written| written.saturating_sub(offset));
        let found = format!("replica {address} is {state}, {behind} bytes and {lag} s behind");
        if state == "online" && lag < LAG_SECONDS {
            return Finding::ok(CHECK, found);
        }
        let endangers = "the further it is behind, the more tokens a failover to it issues again";
        let cure = Cure::advice("repair its connection to the primary, or remove it");
        Finding::bad(Severity::Warning, CHECK, found, endangers, cure)
    };
    replicas.into_iter().map(finding).collect()
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

fn replica(facts: &Facts) -> Finding {
    let primary = facts.info("master_host").zip(facts.info("master_port"));
    let primary = primary.map_or("unknown".to_owned(), |(host, port)| format!("{host}:{port}"));
    let link = facts.info("master_link_status").unwrap_or("unknown");
    let found = format!("a replica; its primary is {primary}, the link to it is {link}");
    let cure = Cure::advice("name the primary");
    if facts.info("slave_read_only") == Some("0") {
        let found = format!("{found}, and it accepts writes (replica-read-only no)");
        let endangers = "writes to it are lost when it next synchronises with its primary, which \
                         issues the same tokens";
        return Finding::bad(Severity::TokenLoss, CHECK, found, endangers, cure);
    }
    let endangers = "no lock can be acquired here, because it accepts no writes";
    Finding::bad(Severity::Unusable, CHECK, found, endangers, cure)
}

fn one_node_of_a_cluster(facts: &Facts) -> Option<Finding> {
    (facts.info("redis_mode") == Some("cluster")).then(|| {
        Finding::bad(
            Severity::Warning,
            CHECK,
            "one node of a Redis Cluster; the others were not examined",
            "the other nodes may have problems that this one does not have",
            Cure::advice("run this with the URL of each node: CLUSTER NODES lists them"),
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
        let findings = lagging(&Facts::new(info, &[]));
        let severities: Vec<_> = findings.iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Ok, Severity::Warning, Severity::Warning]);
        assert_eq!(findings[1].found, "replica 10.0.0.2:6379 is online, 110 bytes and 9 s behind");
    }
}
