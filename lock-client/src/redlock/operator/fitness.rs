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
    /// It does not show whether it is fit.
    Unknown,
}

impl Unfit {
    /// Reads why a server is not fit; `None` if it is.
    pub(in crate::redlock) async fn read(
        connection: &mut impl ConnectionLike,
    ) -> RedisResult<Option<Self>> {
        let info: String = redis::cmd("INFO").query_async(connection).await?;
        Ok(Self::from_info(&info))
    }

    /// Each field alone proves its reason. What a server does not show proves nothing: Valkey has no
    /// `redis_mode`, for example.
    fn from_info(info: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut fields = info.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(field, _)| *field == name).map(|(_, value)| value)
        };
        let replication = [("role", "master"), ("connected_slaves", "0")];
        let is_other = |(name, fit): (&str, &str)| field(name).is_some_and(|value| value != fit);
        let is_missing = |name: &str| field(name).is_none();
        if is_other(("cluster_enabled", "0")) {
            Some(Self::Clustered)
        } else if replication.into_iter().any(is_other) {
            Some(Self::Replicated)
        } else if is_other(("maxmemory_policy", "noeviction")) {
            Some(Self::Evicting)
        } else {
            let shown = ["cluster_enabled", "role", "connected_slaves", "maxmemory_policy"];
            shown.into_iter().any(is_missing).then_some(Self::Unknown)
        }
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
            Self::Unknown => {
                "its INFO does not show whether it has replicas, evicts keys, or is part of a Cluster: take \
                 a Redis or a Valkey"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_field_proves_each_reason() {
        let valkey = "server_mode:standalone\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n\
                      connected_slaves:0\r\ncluster_enabled:0\r\n";
        assert_eq!(Unfit::from_info(valkey), None);
        for (fit, other, reason) in [
            ("cluster_enabled:0", "cluster_enabled:1", Unfit::Clustered),
            ("role:master", "role:slave", Unfit::Replicated),
            ("connected_slaves:0", "connected_slaves:1", Unfit::Replicated),
            ("maxmemory_policy:noeviction", "maxmemory_policy:allkeys-lru", Unfit::Evicting),
        ] {
            assert_eq!(Unfit::from_info(&valkey.replace(fit, other)), Some(reason));
            assert_eq!(Unfit::from_info(&valkey.replace(fit, "")), Some(Unfit::Unknown));
        }
    }
}
