//! The nodes of a cluster (Redlock): what each is like, and what all of them are together.

use std::time::Duration;

use fence::ResourceName;
use redis::RedisError;

use super::{
    Failure, clock,
    connection::{self, Server},
    eviction,
    facts::Facts,
    finding::Finding,
    locking, membership, persistence, replication,
    report::{ClusterReport, NodeReport, Report},
    version, waking,
};
use lock_client::{
    Locks, Ttl,
    redlock::operator::{Operator, State, View},
};

/// How long a lock is granted for that is tried, if the cluster grants so much.
const TTL: Duration = Duration::from_secs(10);

/// Looks at each node, and at all of them together.
pub(super) async fn examine(
    urls: &[&str],
    locks: &Locks,
    operator: &Operator,
) -> Result<ClusterReport, Failure> {
    let seen = operator.inspect().await;
    let name = locking::random_name();
    let longest = seen.cluster.max_ttl_ms.map_or(TTL, Duration::from_millis);
    let ttl =
        Ttl::new(TTL.min(longest)).map_err(|error| Failure::Unavailable(error.to_string()))?;
    let mut findings = vec![membership::majority(&seen.cluster), membership::servers(&seen.nodes)];
    if seen.cluster.voting >= seen.cluster.majority {
        findings.push(locking::on_a_majority(locks, &name, ttl).await);
    }
    let mut nodes = Vec::new();
    for (n, (url, view)) in urls.iter().zip(&seen.nodes).enumerate() {
        let report = match connection::connect(url).await {
            Err(_) => None,
            Ok(mut server) => {
                let tried = match view.state {
                    State::Voting => Some(operator.try_lock_on(n, &name, ttl).await),
                    _ => None,
                };
                examine_node(&mut server, view, tried, &name).await.ok()
            }
        };
        let report = report.unwrap_or_else(|| Report::of_silence(membership::silence(view)));
        nodes.push(NodeReport::new(&view.node, report));
    }
    Ok(ClusterReport::new(findings, nodes))
}

/// Runs all checks that make sense for one node.
async fn examine_node(
    server: &mut Server,
    view: &View,
    tried: Option<Result<(), String>>,
    name: &ResourceName,
) -> Result<Report, RedisError> {
    let user = server.user();
    let facts = Facts::of(&mut server.commands, &user).await?;
    let mut findings: Vec<Finding> =
        vec![membership::membership(view, facts.user()), version::version(&facts)];
    findings.extend(persistence::of_a_node(&facts, view));
    findings.push(eviction::eviction(&facts));
    findings.extend(replication::of_a_node(&mut server.commands, &facts, view).await?);
    findings.push(clock::clock(&mut server.commands).await?);
    if let Some(tried) = tried {
        let cure = locking::node_permissions(facts.user());
        let tried = locking::tidied(&mut server.commands, tried, name, facts.user(), cure);
        findings.push(tried.await?);
    }
    let cure = locking::node_permissions(facts.user());
    findings.push(waking::waking(server, name, facts.user(), cure).await?);
    Ok(Report::new(&facts, findings))
}
