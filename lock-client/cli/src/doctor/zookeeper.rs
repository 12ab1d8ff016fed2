//! A ZooKeeper: its members, and all of them together.

use std::time::Duration;

use doctor::{Check, Report, Verdict, zookeeper};
use lock_client::{
    Locks, Terms, Ttl,
    backend::BackendError,
    zookeeper::{Login, ZooKeeper},
};

use super::locking::{self, UNUSABLE};
use crate::failure::{Failure, with_causes};

/// The ttl of the test lock, if all members grant it.
const TTL: Duration = Duration::from_secs(10);
const UNSEEN: &str =
    "forceSync, which ZooKeeper does not report: with `no`, a power loss may lose changes";

/// Asks all members that the URL names, and runs all checks.
pub(super) async fn examine(client: &ZooKeeper, locks: &Locks) -> Result<Report, Failure> {
    let members = client.members().await.into_iter().map(|member| zookeeper::Member {
        address: member.address,
        report: member.report.map_err(|error| with_causes(&error)).map(|report| {
            zookeeper::MemberReport {
                version: report.version,
                mode: report.mode,
                shares_sessions: report.shares_sessions,
                ttls: report.shortest_ttl..=report.longest_ttl,
                connections: report.connections.map(|connections| zookeeper::Connections {
                    limit: connections.limit,
                    open: connections.open,
                }),
            }
        }),
    });
    let members: Vec<_> = members.collect();
    let Some(first) = members.iter().find_map(|member| member.report.as_ref().ok()) else {
        let errors = members.into_iter().filter_map(|member| member.report.err());
        return Err(Failure::unavailable(errors.collect::<Vec<_>>().join("; ")));
    };
    let system = match &first.version {
        Some(version) => format!("ZooKeeper {version}"),
        None => "ZooKeeper".to_owned(),
    };
    let size = client.ensemble_size().await.map_err(|error| with_causes(&error));
    let mut checks = zookeeper::check(&members, &size);
    // The test lock makes the nodes above it.
    checks.extend(login(client.login().await));
    checks.push(locking(locks, zookeeper::nearest_ttl(&members, TTL)).await);
    Ok(Report { unseen: Some(UNSEEN.to_owned()), ..Report::new(system, None, checks) })
}

/// Rates what the nodes of the locks show about the user and the password.
fn login(seen: Result<Login, BackendError>) -> Option<Check> {
    const NAME: &str = "login";
    let warning = |found: &str, endangers, advice: &'static str| {
        Some(Check::bad(Verdict::Warning, NAME, found, endangers, advice))
    };
    match seen {
        Ok(Login::Anonymous) => None,
        Ok(Login::Confirmed) => Some(Check::ok(NAME, "the nodes of the locks are this user's")),
        Ok(Login::Untested) => warning(
            "there was no node of a lock yet, so nothing shows whether the password is right: \
             ZooKeeper takes any",
            "no token; but only this user with this password may use the nodes that the test lock \
             has left",
            "if the password is wrong, delete the node fenced below the root with it (deleteall)",
        ),
        Ok(Login::Open) => warning(
            "everybody may make locks here, so nothing shows whether the password is right: \
             ZooKeeper takes any",
            "no token; but a client with a wrong password makes locks that the others can't use",
            "make sure of the password, or let only this user use the node fenced and the nodes \
             queues and offsets below it (setAcl)",
        ),
        Ok(Login::Rejected { node, source }) => Some(Check::bad(
            Verdict::Unfit,
            NAME,
            format!("the node {node} can't be used: {}", with_causes(&source)),
            UNUSABLE,
            "correct the user or the password in the URL, or give the node to this user (setAcl)",
        )),
        Err(error) => warning(
            &format!("the nodes of the locks could not be seen: {}", with_causes(&error)),
            "a danger may be hidden here",
            "resolve the error",
        ),
    }
}

/// Acquires, renews and releases a lock. Only the nodes above those of all locks are left.
async fn locking(locks: &Locks, ttl: Duration) -> Check {
    let used = match Ttl::new(ttl) {
        Ok(ttl) => {
            let terms = Terms::new(ttl).no_wait().fair();
            locking::use_lock(locks, &locking::unused_name(), terms).await
        }
        Err(error) => Err(with_causes(&error)),
    };
    locking::check(
        used,
        "acquired, renewed and released a lock",
        "resolve the error, and the other checks; a root in the URL must exist, and nodes that belong to a user \
         need that user in the URL",
    )
}
