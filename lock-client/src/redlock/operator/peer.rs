//! A node that the operator is connected to.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};

use super::error::OperatorError;
use crate::{
    redis::TimeLimits,
    redlock::{
        membership::{Record, Standing, read_run_id},
        node_urls::NodeUrl,
        persistence::Persistence,
    },
};

/// A node that the operator is connected to.
pub(super) struct Peer {
    /// The node's address, without a password.
    pub(super) address: String,
    pub(super) connection: MultiplexedConnection,
    /// The process that the operator is connected to.
    pub(super) run_id: String,
    /// The node's membership record.
    pub(super) record: Option<Record>,
    pub(super) standing: Standing,
    /// The time that the node took to answer.
    pub(super) lag: Duration,
}

/// A node did not answer, or refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{address}: {reason}")]
pub(super) struct PeerError {
    pub(super) address: String,
    pub(super) reason: String,
}

impl PeerError {
    fn new(address: &str, error: &RedisError) -> Self {
        Self { address: address.to_owned(), reason: error.to_string() }
    }
}

impl From<PeerError> for OperatorError {
    fn from(error: PeerError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl Peer {
    /// Connects to a node of a cluster of so many nodes.
    pub(super) async fn connect(
        url: &NodeUrl,
        nodes: usize,
        limits: TimeLimits,
    ) -> Result<Self, PeerError> {
        let connected = Self::read(url, nodes, limits).await;
        connected.map_err(|error| PeerError::new(&url.address, &error))
    }

    async fn read(url: &NodeUrl, nodes: usize, limits: TimeLimits) -> RedisResult<Self> {
        // An operator's requests may take longer than those for a lock.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limits.answer * 4))
            .set_response_timeout(Some(limits.answer * 10));
        let client = url.server.node().await?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let asked = Instant::now();
        let run_id = read_run_id(&mut connection).await?;
        let lag = asked.elapsed();
        let record = Record::read(&mut connection).await?;
        let standing = Standing::determine(&run_id, record.as_ref(), nodes);
        Ok(Self { address: url.address.clone(), connection, run_id, record, standing, lag })
    }

    /// The id of the cluster in the node's record.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.cluster.as_str())
    }

    pub(super) async fn persistence(&mut self) -> Result<Persistence, PeerError> {
        let persistence = Persistence::read(&mut self.connection).await;
        persistence.map_err(|error| self.error(&error))
    }

    /// Whether the node is a single Redis: not a replica, and not part of a Cluster.
    pub(super) async fn is_single(&mut self) -> Result<bool, PeerError> {
        let info = redis::cmd("INFO").query_async(&mut self.connection).await;
        let info: String = info.map_err(|error| self.error(&error))?;
        let has = |field: &str| info.lines().any(|line| line == field);
        Ok(has("redis_mode:standalone") && has("role:master"))
    }

    pub(super) fn error(&self, error: &RedisError) -> PeerError {
        PeerError::new(&self.address, error)
    }
}

/// Checks that no two nodes are the same server.
pub(super) fn check_distinct<'a>(
    peers: impl IntoIterator<Item = &'a Peer>,
) -> Result<(), OperatorError> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for peer in peers {
        if let Some(other) = seen.insert(&peer.run_id, &peer.address) {
            return Err(OperatorError::Invalid(format!(
                "{other} and {} are one server: each node must be a Redis of its own",
                peer.address
            )));
        }
    }
    Ok(())
}

/// Returns the cluster that most of these nodes belong to.
pub(super) fn largest_cluster<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> Option<String> {
    let mut clusters: Vec<_> = peers.into_iter().filter_map(Peer::cluster).collect();
    clusters.sort_unstable();
    let largest = clusters.chunk_by(|a, b| a == b).max_by_key(|same| same.len())?;
    largest.first().map(|&cluster| cluster.to_owned())
}
