//! An etcd: its members, and all of them together.

use std::time::Duration;

use doctor::{Check, Report, etcd};
use lock_client::{Locks, Terms, Ttl, etcd::Etcd};
use tokio::join;

use super::locking;
use crate::failure::{Failure, with_causes};

/// A common shortest ttl is 2 seconds.
const TTL: Duration = Duration::from_secs(10);

/// Asks all members that the URL names, and runs all checks.
pub(super) async fn examine(etcd: &Etcd, locks: &Locks) -> Result<Report, Failure> {
    let members = etcd.members().await.into_iter().map(|member| etcd::Member {
        address: member.address,
        report: member.report.map_err(|error| with_causes(&error)).map(|report| {
            etcd::MemberReport { cluster_id: report.cluster_id, version: report.version }
        }),
    });
    let members: Vec<_> = members.collect();
    let Some(first) = members.iter().find_map(|member| member.report.as_ref().ok()) else {
        let errors = members.into_iter().filter_map(|member| member.report.err());
        return Err(Failure::unavailable(errors.collect::<Vec<_>>().join("; ")));
    };
    let system = format!("etcd {}", first.version);
    let cluster = etcd.cluster().await.map_err(|error| with_causes(&error));
    let cluster = cluster.map(|it| etcd::Cluster { members: it.members, alarms: it.alarms });
    let (clock, locking) = join!(etcd.lease_clock(), locking(locks));
    let clock = clock.map_err(|error| with_causes(&error)).map(|clock| etcd::LeaseClock {
        granted: clock.granted,
        left: clock.left,
        elapsed: clock.elapsed,
    });
    let mut checks = etcd::check(&members, &cluster, &clock);
    checks.push(locking);
    Ok(Report::new(system, None, checks))
}

/// Acquires, renews and releases a lock. Nothing of it is left.
async fn locking(locks: &Locks) -> Check {
    let ttl = Ttl::new(TTL).expect("it is a valid ttl");
    let terms = Terms::new(ttl).no_wait().fair();
    let used = locking::use_lock(locks, &locking::unused_name(), terms).await;
    locking::check(
        used,
        "acquired, renewed and released a lock",
        "resolve the error, and the other checks; a user needs the permission to read and write the prefix \
         fenced/",
    )
}
