//! A node's membership in a cluster, and whether it may vote.
//!
//! A node that has lost counters must not vote. So each node keeps a record: the cluster that
//! admitted it, the epoch in which it takes part, and the process that was admitted. The process is
//! known by its `run_id`, which Redis creates anew at each start. A process with another `run_id`
//! has no vote: it may have come up with nothing, or with an old file, which restores the record
//! together with old counters. Settings prove nothing here: a file that was switched off meanwhile
//! also brings both back.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError, RedisResult, aio::ConnectionLike};

use super::{
    epoch::{Ballots, Epoch, Previous},
    node_error::NodeError,
};
use crate::redis::keys::Keys;

/// A node's right to vote, as it was when the client connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    /// The process that was admitted. The client is connected to it.
    pub(super) run_id: String,
    /// The node's address among the members.
    pub(super) address: String,
    /// The epoch in which it votes.
    pub(super) epoch: Epoch,
}

/// The record of its membership that a node keeps.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The epoch in which the node takes part.
    pub(super) epoch: Epoch,
    /// The node's address among the members.
    pub(super) address: String,
    /// The process that was admitted; `None` before the first.
    pub(super) admitted: Option<String>,
    /// What the scripts compare with a client's vote.
    pub(super) vote: Option<String>,
    /// The process that was prepared for admission while the cluster was being started.
    pub(super) prepared: Option<String>,
    /// The epoch before, if the node voted in it until the members changed.
    pub(super) previous: Option<Previous>,
    pub(super) ballots: Ballots,
    /// Whether the change that began the epoch is known to be decided. If not, another may be
    /// decided instead.
    pub(super) is_decided: bool,
}

/// The standing of a process in its node's cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may vote.
    Voting,
    /// Another process was admitted before it, or its vote is gone. The node restarted or lost data,
    /// and may have lost counters.
    Restarted,
    /// The cluster was not started completely. The node has never voted.
    Prepared,
    /// The process was admitted, but takes part in another epoch than the current one.
    OtherEpoch,
    /// The node is no member in the current epoch.
    Removed,
    /// The node belongs to another cluster.
    OtherCluster,
    /// The node belongs to no cluster.
    NoCluster,
}

impl Membership {
    /// What the client names in each request for a vote. The node has the same in its record, as one
    /// field, unless its epoch or its process is another.
    pub(super) fn vote(&self) -> String {
        vote(&self.epoch, &self.run_id)
    }

    /// Whether the node is a member of its epoch. A node that a change has removed names the new
    /// members, but has no vote among them.
    pub(super) fn is_member(&self) -> bool {
        self.epoch.has_member(&self.address)
    }

    /// Reads a node's membership.
    ///
    /// # Errors
    /// If the process takes part in no epoch.
    pub(super) async fn read(connection: &mut impl ConnectionLike) -> Result<Self, NodeError> {
        let run_id = read_run_id(connection).await?;
        let record = Record::read(connection).await?;
        match (Standing::determine(&run_id, record.as_ref(), None), record) {
            (Standing::Voting, Some(Record { address, epoch, .. })) => {
                Ok(Self { run_id, address, epoch })
            }
            (Standing::Removed, Some(Record { address, epoch, admitted, .. }))
                if admitted.as_ref() == Some(&run_id) =>
            {
                Ok(Self { run_id, address, epoch })
            }
            (standing, _) => Err(NodeError::NoVote(standing.reason().to_owned())),
        }
    }
}

impl Standing {
    /// Compares a process with its node's record, and the record with the current epoch. If that is
    /// not known, the epoch in the record counts.
    pub(super) fn determine(
        run_id: &str,
        record: Option<&Record>,
        current: Option<&Epoch>,
    ) -> Self {
        let Some(record) = record else { return Self::NoCluster };
        let current = current.unwrap_or(&record.epoch);
        if record.epoch.cluster != current.cluster {
            return Self::OtherCluster;
        }
        if !current.has_member(&record.address) {
            return Self::Removed;
        }
        let is_current = record.epoch.change == current.change;
        match &record.admitted {
            Some(admitted) if admitted == run_id && !is_current => Self::OtherEpoch,
            // Without the vote that it was admitted with, the node has lost data.
            Some(admitted) if admitted == run_id && record.has_vote(run_id) => Self::Voting,
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
            Self::OtherEpoch => {
                "it votes in another epoch than most members: `lock-client node admit --watch` \
                 finishes the change that it has missed"
            }
            Self::Removed => {
                "it is no member any more: name the new members, and stop it when they vote"
            }
            Self::OtherCluster => {
                "it belongs to another cluster: name all nodes of one cluster, and no others"
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

    /// Whether the node has the vote of a process in its epoch.
    fn has_vote(&self, run_id: &str) -> bool {
        self.vote.as_ref().is_some_and(|own| *own == vote(&self.epoch, run_id))
    }

    fn from_fields(mut fields: HashMap<String, String>) -> Option<Self> {
        Some(Self {
            epoch: Epoch::from_fields(&fields)?,
            previous: Previous::from_fields(&fields),
            ballots: Ballots::from_fields(&fields),
            is_decided: fields.contains_key("decided"),
            address: fields.remove("address")?,
            admitted: fields.remove("run_id"),
            vote: fields.remove("vote"),
            prepared: fields.remove("prepared"),
        })
    }
}

fn vote(epoch: &Epoch, run_id: &str) -> String {
    format!("{} {run_id}", epoch.change)
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
