//! What the members of etcd report about themselves, for a check of the cluster.

use std::{ops::RangeInclusive, time::Duration};

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use super::{
    client::Etcd,
    keys,
    messages::{AlarmReply, MembersReply, StatusReply},
};
use crate::{backend::BackendError, clock::Moment};

/// The time of the lease that shows the clock. A common shortest time is 2 seconds.
const LEASE_SECONDS: i64 = 10;
/// How long the clock of leases is watched.
const WATCHED_FOR: Duration = Duration::from_secs(1);

/// A member that the URL names.
#[derive(Debug)]
pub struct MemberHealth {
    /// Its host and port.
    pub address: String,
    /// What it reports. A member that knows no leader reports nothing.
    pub report: Result<MemberReport, BackendError>,
}

/// What a member reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// The id of its cluster.
    pub cluster_id: u64,
    /// Its version, such as `3.5.13`.
    pub version: String,
}

/// What the cluster reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterReport {
    /// The number of its members, whether the URL names them or not.
    pub members: usize,
    /// The alarms that are on, such as `NOSPACE`.
    pub alarms: Vec<String>,
}

/// What a lease has shown of the clock that ends leases, which is the leader's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseClock {
    /// The time for which the lease was granted.
    pub granted: Duration,
    /// What was left of it later, by the leader's clock. The rest of the last second is cut off.
    pub left: Duration,
    /// The time between these two moments, by this machine's clock. It is a range, because it is
    /// unknown when in each round trip the leader looked at its clock.
    pub elapsed: RangeInclusive<Duration>,
}

impl Etcd {
    /// Watches the clock that ends leases for a second, by a lease without a key.
    ///
    /// # Errors
    /// [`BackendError`] if etcd does not answer, or rejects the request.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the lease ends by itself.
    pub async fn lease_clock(&self) -> Result<LeaseClock, BackendError> {
        let (id, seconds) = (keys::shared_lease(), LEASE_SECONDS..=i64::MAX);
        let before_grant = Moment::now();
        let lease = self.tries.grant(id, seconds).await?;
        let after_grant = Moment::now();
        sleep(WATCHED_FOR).await;
        let at_least = after_grant.elapsed();
        let left = self.tries.seconds_left(id).await?;
        let elapsed = at_least..=before_grant.elapsed();
        self.tries.revoke(id).await?;
        let granted = Duration::from_secs(lease.seconds.unsigned_abs());
        Ok(LeaseClock { granted, left: Duration::from_secs(left), elapsed })
    }

    /// Asks each member that the URL names about itself.
    pub async fn members(&self) -> Vec<MemberHealth> {
        let members = &self.tries.server().members;
        join_all(members.iter().map(async |member| {
            let reply = self.tries.call_member(member, "maintenance/status", &json!({})).await;
            let report = reply.map(|reply: StatusReply| MemberReport {
                cluster_id: reply.header.cluster_id,
                version: reply.version,
            });
            MemberHealth { address: member.to_string(), report: report.map_err(Into::into) }
        }))
        .await
    }

    /// Asks one member about the cluster.
    ///
    /// # Errors
    /// [`BackendError`] if it doesn't answer, or rejects the request.
    pub async fn cluster(&self) -> Result<ClusterReport, BackendError> {
        let members: MembersReply = self.tries.call("cluster/member/list", &json!({})).await?;
        let get = json!({ "action": "GET" });
        let alarms: AlarmReply = self.tries.call("maintenance/alarm", &get).await?;
        let alarms = alarms.alarms.into_iter().map(|alarm| alarm.alarm).collect();
        Ok(ClusterReport { members: members.members.len(), alarms })
    }
}
