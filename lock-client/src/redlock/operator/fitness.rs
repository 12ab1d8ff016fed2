//! Whether a server is fit to be a node.
//!
//! A process is known by its `run_id`, and must not lose counters while it has that. A failover and the
//! failback after it keep it, and bring the replica's counters, which may lack the last grants. An
//! eviction deletes single counters.

use super::error::OperatorError;
use crate::redlock::peer::{Peer, PeerError};

/// Why a server is not fit to be a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is a replica, or has one.
    Replicated,
    /// It evicts keys when its memory is full.
    Evicting,
    /// It is part of a Redis Cluster.
    Clustered,
}

impl Unfit {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Replicated => {
                "it is a replica, or has one: a failover and the failback after it bring old counters, and \
                 nothing shows that. End the replication, and restart the node"
            }
            Self::Evicting => {
                "it evicts keys when its memory is full, and counters with them: set maxmemory-policy \
                 noeviction in redis.conf, and restart the node"
            }
            Self::Clustered => "it is part of a Redis Cluster: each node must be a single Redis",
        }
    }

    /// Reads the answer to `INFO`. What it does not show counts as unfit.
    fn from_info(info: &str) -> Option<Self> {
        let has = |field: &str| info.lines().any(|line| line == field);
        if !has("redis_mode:standalone") {
            Some(Self::Clustered)
        } else if !has("role:master") || !has("connected_slaves:0") {
            Some(Self::Replicated)
        } else if !has("maxmemory_policy:noeviction") {
            Some(Self::Evicting)
        } else {
            None
        }
    }
}

impl Peer {
    /// Returns why the server is not fit to be a node; `None` if it is.
    pub(super) async fn unfitness(&mut self) -> Result<Option<Unfit>, PeerError> {
        let info = redis::cmd("INFO").query_async(&mut self.connection).await;
        let info: String = info.map_err(|error| self.error(&error))?;
        Ok(Unfit::from_info(&info))
    }

    /// Checks that the server is fit to be a node.
    pub(super) async fn check_fitness(&mut self) -> Result<(), OperatorError> {
        match self.unfitness().await? {
            None => Ok(()),
            Some(unfit) => Err(OperatorError::Invalid(format!(
                "{} is not fit to be a node: {}",
                self.address,
                unfit.reason()
            ))),
        }
    }
}
