//! What the members of etcd report about themselves, for a check of the cluster.

use futures_util::future::join_all;

use super::{
    client::Etcd,
    messages::{AlarmReply, AlarmRequest, Empty, MembersReply, StatusReply},
};
use crate::backend::BackendError;

/// A member that the URL names.
#[derive(Debug)]
pub struct MemberHealth {
    /// Its host and port.
    pub address: String,
    /// What it reports. A member that knows no leader refuses to.
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

impl Etcd {
    /// Asks each member that the URL names about itself.
    pub async fn members(&self) -> Vec<MemberHealth> {
        let members = &self.connection.server().members;
        join_all(members.iter().map(async |member| {
            let reply = self.connection.call_member(member, "maintenance/status", &Empty {}).await;
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
    /// [`BackendError`] if it doesn't answer, or refuses.
    pub async fn cluster(&self) -> Result<ClusterReport, BackendError> {
        let members: MembersReply = self.connection.call("cluster/member/list", &Empty {}).await?;
        let request = AlarmRequest { action: "GET" };
        let alarms: AlarmReply = self.connection.call("maintenance/alarm", &request).await?;
        let alarms = alarms.alarms.into_iter().map(|alarm| alarm.alarm).collect();
        Ok(ClusterReport { members: members.members.len(), alarms })
    }
}
