//! A Redlock cluster: each node by itself, and all nodes together.

use std::time::Duration;

use fence::ResourceName;
use lock_client::{
    Locks, Ttl,
    redlock::operator::{Operator, State, View},
};
use redis::RedisError;

use super::{
    clock,
    connection::{self, Server},
    eviction,
    facts::Facts,
    finding::Finding,
    locking, membership, persistence, proxy, replication,
    report::{ClusterReport, NodeReport, Report},
    version, waking,
};
use crate::failure::Failure;

/// The ttl of the lock that is acquired as a test, if the cluster grants that much.
const TTL: Duration = Duration::from_secs(10);

/// Examines each node, and all of them together.
pub(super) async fn examine(
    urls: &[&str],
    locks: &Locks,
    operator: &Operator,
) -> Result<ClusterReport, Failure> {
    let seen = operator.inspect().await;
    let name = locking::unused_name();
    let longest = seen.cluster.max_ttl_ms.map_or(TTL, Duration::from_millis);
    let ttl =
        Ttl::new(TTL.min(longest)).map_err(|error| Failure::Unavailable(error.to_string()))?;
    let mut findings = vec![membership::majority(&seen.cluster), membership::servers(&seen.nodes)];
    if seen.cluster.voting >= seen.cluster.majority {
        findings.push(locking::majority_locking(locks, &name, ttl).await);
    }
    let mut nodes = Vec::new();
    for view in &seen.nodes {
        let url = urls.iter().find(|url| is_at(url, view));
        let connected = match url {
            Some(url) => connection::connect(url).await.ok(),
            None => None,
        };
        let report = match connected {
            None => None,
            Some(mut server) => {
                let locked = match view.state {
                    State::Voting => Some(operator.try_lock_on(&view.node, &name, ttl).await),
                    _ => None,
                };
                examine_node(&mut server, view, locked, &name).await.ok()
            }
        };
        let report = report.unwrap_or_else(|| match url {
            Some(_) => Report::unreachable(membership::unreachable(view)),
            None => Report::unchecked(membership::not_named()),
        });
        nodes.push(NodeReport::new(&view.node, report));
    }
    Ok(ClusterReport::new(findings, nodes))
}

/// Whether a URL names this node.
fn is_at(url: &str, view: &View) -> bool {
    lock_client::redis::Server::open(url).is_ok_and(|server| server.to_string() == view.node)
}

/// Runs the checks of one node. `locked` is the result of a test lock on it.
///
/// # Errors
/// If the connection is lost.
async fn examine_node(
    server: &mut Server,
    view: &View,
    locked: Option<Result<(), String>>,
    name: &ResourceName,
) -> Result<Report, RedisError> {
    let user = server.user();
    let facts = Facts::query(&mut server.commands, &user).await?;
    let mut findings: Vec<Finding> =
        vec![membership::membership(view, facts.user()), version::version(&facts)];
    findings.extend(persistence::node_persistence(&facts));
    findings.push(eviction::eviction(&facts));
    findings.push(proxy::proxy(server).await?);
    findings.extend(replication::node_replication(&mut server.commands, &facts).await?);
    findings.push(clock::clock(&mut server.commands).await?);
    let permissions = || locking::node_permissions(facts.user());
    if let Some(locked) = locked {
        let commands = &mut server.commands;
        let cleaned =
            locking::clean_up(commands, locked, name, facts.user(), permissions()).await?;
        findings.push(cleaned);
    }
    findings.push(waking::waking(server, name, facts.user(), permissions()).await?);
    Ok(Report::new(&facts, findings))
}
