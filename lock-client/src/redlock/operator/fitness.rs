//! Whether a server is fit to be a node.
//!
//! A process is known by its `run_id`, and must not lose counters while it has that. A failover and the
//! failback after it keep it, and bring the replica's counters, which may lack the last grants. An
//! eviction deletes single counters.

use redis::{RedisResult, aio::ConnectionLike};

/// Why a server is not fit to be a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redlock) enum Unfit {
    /// It is a replica, or has one.
    Replicated,
    /// It evicts keys when its memory is full.
    Evicting,
    /// It is part of a Redis Cluster.
    Clustered,
}

impl Unfit {
    /// Reads why a server is not fit; `None` if it is.
    pub(in crate::redlock) async fn read(
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<Option<Self>> {
        let info: String = redis::cmd("INFO").query_async(connection).await?;
        // What it does not show counts as unfit.
        let has = |field: &str| info.lines().any(|line| line == field);
        Ok(if !has("redis_mode:standalone") {
            Some(Self::Clustered)
        } else if !has("role:master") || !has("connected_slaves:0") {
            Some(Self::Replicated)
        } else if !has("maxmemory_policy:noeviction") {
            Some(Self::Evicting)
        } else {
            None
        })
    }

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
}
