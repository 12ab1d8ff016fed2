//! One Redis: alone, the primary behind Sentinels, or one node of a Redis Cluster.

use lock_client::Locks;
use redis::RedisError;

use super::{
    clock,
    connection::{self, Server},
    eviction,
    facts::Facts,
    locking, membership, persistence, replication,
    report::Report,
    version, waking,
};
use crate::failure::Failure;

/// Connects, and runs all checks.
pub(super) async fn examine(url: &str, locks: &Locks) -> Result<Report, Failure> {
    let mut server = connection::connect(url).await?;
    let examined = run_checks(&mut server, locks).await;
    examined.map_err(|error| server.unavailable(&error))
}

/// Runs all checks. A command that the server rejects is a finding.
///
/// # Errors
/// If the connection is lost.
async fn run_checks(server: &mut Server, locks: &Locks) -> Result<Report, RedisError> {
    let user = server.user();
    let facts = Facts::query(&mut server.commands, &user).await?;
    let mut findings = vec![version::version(&facts)];
    findings.extend(membership::named_alone(&mut server.commands).await?);
    findings.extend(persistence::persistence(&facts));
    findings.push(eviction::eviction(&facts));
    findings.extend(replication::replication(&mut server.commands, &facts).await?);
    findings.push(clock::clock(&mut server.commands).await?);
    let name = locking::unused_name_on(&mut server.commands).await?;
    findings.push(locking::locking(&mut server.commands, locks, &name, facts.user()).await?);
    let permissions = locking::permissions(facts.user());
    findings.push(waking::waking(server, &name, facts.user(), permissions).await?);
    Ok(Report::new(&facts, findings))
}
