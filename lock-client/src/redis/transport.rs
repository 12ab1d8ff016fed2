//! The connection of the `redis` crate that requests are sent over.

use redis::cluster_async::ClusterConnection;
use redis::{
    Cmd, FromRedisValue, RedisResult,
    aio::{ConnectionLike, MultiplexedConnection},
};

use super::server::UsedCertificates;

#[derive(Clone)]
pub(crate) enum Transport {
    Node(MultiplexedConnection),
    /// The connections to a Cluster, which finds its nodes and reconnects to them by itself.
    Cluster(ClusterConnection, UsedCertificates),
}

impl Transport {
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        async fn send<T: FromRedisValue>(
            connection: &mut impl ConnectionLike,
            command: &Cmd,
        ) -> RedisResult<T> {
            command.query_async(connection).await
        }
        match self {
            Self::Node(connection) => send(connection, command).await,
            Self::Cluster(connection, _) => send(connection, command).await,
        }
    }

    /// Whether it connects again with certificates that are no longer those on disk.
    pub(super) fn has_old_certificates(&self) -> bool {
        match self {
            // A new connection to one node has new certificates.
            Self::Node(_) => false,
            Self::Cluster(_, certificates) => certificates.were_renewed(),
        }
    }

    /// The connection, if it leads to one node. Such a connection must be replaced when it is lost,
    /// or when its server is no longer the primary.
    pub(super) fn single_node(&self) -> Option<&MultiplexedConnection> {
        match self {
            Self::Node(connection) => Some(connection),
            Self::Cluster(..) => None,
        }
    }
}
