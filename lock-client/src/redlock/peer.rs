//! A node that is connected to, whether it votes or not.

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};

use super::{
    epoch::Epoch,
    membership::{Record, Standing, read_run_id},
    node_urls::NodeUrl,
    persistence::Persistence,
};
use crate::redis::TimeLimits;

/// A node that is connected to, whether it votes or not.
pub(super) struct Peer {
    /// The node's address, without a password.
    pub(super) address: String,
    pub(super) connection: MultiplexedConnection,
    /// The process at the other end of the connection.
    pub(super) run_id: String,
    /// The node's membership record.
    pub(super) record: Option<Record>,
    pub(super) standing: Standing,
    /// The time that the node took to answer.
    pub(super) lag: Duration,
}

/// A node did not answer, or rejected the request.
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

impl Peer {
    /// Connects to a node, and reads its record. Its standing does not yet consider which epoch is
    /// the current one.
    pub(super) async fn connect(url: &NodeUrl, limits: TimeLimits) -> Result<Self, PeerError> {
        let connected = Self::read(url, limits).await;
        connected.map_err(|error| PeerError::new(&url.address, &error))
    }

    async fn read(url: &NodeUrl, limits: TimeLimits) -> RedisResult<Self> {
        // These requests may take longer than those for a lock.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limits.answer * 4))
            .set_response_timeout(Some(limits.answer * 10));
        let client = url.server.node().await?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let asked = Instant::now();
        let run_id = read_run_id(&mut connection).await?;
        let lag = asked.elapsed();
        let record = Record::read(&mut connection).await?;
        let standing = Standing::determine(&run_id, record.as_ref(), None);
        Ok(Self { address: url.address.clone(), connection, run_id, record, standing, lag })
    }

    /// Reads the process and its record again.
    pub(super) async fn read_again(&mut self) -> RedisResult<()> {
        self.run_id = read_run_id(&mut self.connection).await?;
        self.record = Record::read(&mut self.connection).await?;
        Ok(())
    }

    /// The id of the cluster in the node's record.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.epoch.cluster.as_str())
    }

    /// The node's address among the members, as its record has it.
    pub(super) fn member(&self) -> Option<&str> {
        self.record.as_ref().map(|record| record.address.as_str())
    }

    /// The member as which the process was admitted, in any epoch.
    pub(super) fn admitted_as(&self) -> Option<&str> {
        let record = self.record.as_ref()?;
        (record.admitted.as_ref() == Some(&self.run_id)).then_some(record.address.as_str())
    }

    /// Whether the process may vote in an epoch.
    pub(super) fn votes_in(&self, epoch: &Epoch) -> bool {
        let standing = Standing::determine(&self.run_id, self.record.as_ref(), Some(epoch));
        standing == Standing::Voting
    }

    pub(super) async fn persistence(&mut self) -> Result<Persistence, PeerError> {
        let persistence = Persistence::read(&mut self.connection).await;
        persistence.map_err(|error| self.error(&error))
    }

    pub(super) fn error(&self, error: &RedisError) -> PeerError {
        PeerError::new(&self.address, error)
    }
}

/// Returns the cluster that most of these nodes belong to.
pub(super) fn largest_cluster<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> Option<String> {
    let mut clusters: Vec<_> = peers.into_iter().filter_map(Peer::cluster).collect();
    clusters.sort_unstable();
    let largest = clusters.chunk_by(|a, b| a == b).max_by_key(|same| same.len())?;
    largest.first().map(|&cluster| cluster.to_owned())
}
