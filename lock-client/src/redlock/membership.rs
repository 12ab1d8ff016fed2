//! A node's membership in a cluster, and whether it may vote.
//!
//! A node that has lost counters must not vote. So each node keeps a record: the cluster that
//! admitted it, and the process that was admitted. The process is known by its `run_id`, which
//! Redis creates anew at each start. A process with another `run_id` has no vote: it may have come
//! up with nothing, or with an old file, which restores the record together with old counters.
//! Settings prove nothing here: a file that was switched off meanwhile also brings both back.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError, RedisResult, aio::ConnectionLike};

use super::node_error::NodeError;
use crate::redis::keys::Keys;

/// A node's right to vote, as it was when the client connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    /// The cluster's id.
    pub(super) cluster: String,
    /// The process that was admitted. The client is connected to it.
    pub(super) run_id: String,
    /// The longest ttl that the cluster grants.
    pub(super) max_ttl_ms: u64,
}

/// The record of its membership that a node keeps.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The cluster's id.
    pub(super) cluster: String,
    /// The number of nodes in the cluster.
    pub(super) nodes: usize,
    /// The longest ttl that the cluster grants.
    pub(super) max_ttl_ms: u64,
    /// The process that was admitted; `None` before the first.
    pub(super) admitted: Option<String>,
    /// The process that was prepared for admission while the cluster was being started.
    pub(super) prepared: Option<String>,
}

/// The standing of a process in its node's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may vote.
    Voting,
    /// Another process was admitted before it. The node restarted, and may have lost counters.
    Restarted,
    /// The cluster was not started completely. The node has never voted.
    Prepared,
    /// The node belongs to another cluster.
    OtherCluster,
    /// The node belongs to no cluster.
    NoCluster,
}

impl Membership {
    /// Reads a node's membership in a cluster of so many nodes.
    ///
    /// # Errors
    /// If the node may not vote.
    pub(super) async fn read(
        connection: &mut impl ConnectionLike,
        nodes: usize,
    ) -> Result<Self, NodeError> {
        let run_id = read_run_id(connection).await?;
        let record = Record::read(connection).await?;
        match (Standing::determine(&run_id, record.as_ref(), nodes), record) {
            (Standing::Voting, Some(Record { cluster, max_ttl_ms, .. })) => {
                Ok(Self { cluster, run_id, max_ttl_ms })
            }
            (standing, _) => Err(NodeError::NoVote(standing.reason().to_owned())),
        }
    }
}

impl Standing {
    /// Compares a process with its node's record.
    pub(super) fn determine(run_id: &str, record: Option<&Record>, nodes: usize) -> Self {
        let Some(record) = record else { return Self::NoCluster };
        if record.nodes != nodes {
            return Self::OtherCluster;
        }
        match &record.admitted {
            Some(admitted) if admitted == run_id => Self::Voting,
            None if record.prepared.as_deref() == Some(run_id) => Self::Prepared,
            _ => Self::Restarted,
        }
    }

    /// Why the process has no vote, and how it gets one.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Voting => "it may vote",
            Self::Restarted => {
                "it restarted after it was admitted, and may have lost counters: run \
                 `lock-client node admit` for it"
            }
            Self::Prepared => {
                "its cluster was not started completely: run `lock-client node init` again"
            }
            Self::OtherCluster => {
                "it belongs to another cluster, or to a cluster of another size: name all nodes of \
                 one cluster, and no others"
            }
            Self::NoCluster => {
                "it belongs to no cluster: run `lock-client node init` to start one, or \
                 `lock-client node admit` if only this node has lost its data. If all nodes have, \
                 stop all clients and wait for the longest ttl before `node init`"
            }
        }
    }
}

impl Record {
    /// Reads a node's record; `None` if there is no complete one.
    pub(super) async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Option<Self>> {
        let fields = redis::cmd("HGETALL").arg(Keys::NODE).query_async(connection).await?;
        Ok(Self::from_fields(fields))
    }

    fn from_fields(mut fields: HashMap<String, String>) -> Option<Self> {
        Some(Self {
            cluster: fields.remove("cluster")?,
            nodes: fields.get("nodes")?.parse().ok()?,
            max_ttl_ms: fields.get("max_ttl_ms")?.parse().ok()?,
            admitted: fields.remove("run_id"),
            prepared: fields.remove("prepared"),
        })
    }
}

/// Reads the id of the process at the other end of a connection.
///
/// # Errors
/// Also if the process does not report its id: then a restart would go unnoticed.
pub(super) async fn read_run_id(connection: &mut impl ConnectionLike) -> RedisResult<String> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let run_id = fields.find(|(name, id)| *name == "run_id" && !id.is_empty());
    let missing = || RedisError::from((ErrorKind::Client, "INFO does not contain its run_id"));
    run_id.map(|(_, run_id)| run_id.to_owned()).ok_or_else(missing)
}
