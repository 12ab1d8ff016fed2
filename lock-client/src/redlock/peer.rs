//! A server that an operator is connected to.

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::time::timeout;

use super::{
    machines::takeover::Answer,
    node_urls::NodeUrl,
    operator::Unfit,
    persistence::Persistence,
    record::{Record, Standing, read_process},
    roster::Roster,
};
use crate::redis::TimeLimits;

/// A server that an operator is connected to.
pub(super) struct Peer {
    /// The server's address, without a password.
    pub(super) address: String,
    pub(super) connection: MultiplexedConnection,
    /// The process at the other end of the connection.
    pub(super) process: String,
    /// The server's record.
    pub(super) record: Option<Record>,
    /// Why it must be no node; `None` if it may be one.
    pub(super) unfit: Option<Unfit>,
    /// The time that the server took to answer.
    pub(super) lag: Duration,
}

/// A server did not answer, or rejected the request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{address}: {reason}")]
pub(super) struct PeerError {
    pub(super) address: String,
    pub(super) reason: String,
}

impl Peer {
    /// Connects to a server, and reads its record.
    pub(super) async fn connect(url: &NodeUrl, limits: TimeLimits) -> Result<Self, PeerError> {
        let error = |reason| PeerError { address: url.address.clone(), reason };
        // A server that hangs must not hold up the others.
        let connected = timeout(limits.answer * 4, Self::read(url, limits)).await;
        let connected = connected.map_err(|_| error("no answer in time".to_owned()))?;
        connected.map_err(|source| error(source.to_string()))
    }

    async fn read(url: &NodeUrl, limits: TimeLimits) -> RedisResult<Self> {
        // Later requests may take longer than those for a lock.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(limits.answer * 10));
        let client = url.server.node().await?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let asked = Instant::now();
        let process = read_process(&mut connection).await?;
        let lag = asked.elapsed();
        let unfit = Unfit::read(&mut connection).await?;
        let record = Record::read(&mut connection).await?;
        Ok(Self { address: url.address.clone(), connection, process, record, unfit, lag })
    }

    /// The roster in the server's data.
    pub(super) fn roster(&self) -> Option<&Roster> {
        self.record.as_ref().map(|record| &record.roster)
    }

    /// The cluster in the server's data.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.roster().map(|roster| roster.cluster.as_str())
    }

    /// Whether the process votes for the roster in its data.
    pub(super) fn votes(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.admits(&self.process))
    }

    /// The roster that the process has voted for until it gave up its vote.
    pub(super) fn retired_from(&self) -> Option<&Roster> {
        self.record.as_ref()?.retired_from(&self.process)
    }

    /// The roster that the process votes for, or has voted for until it gave up its vote.
    pub(super) fn voted_for(&self) -> Option<&Roster> {
        self.retired_from().or_else(|| self.roster().filter(|_| self.votes()))
    }

    pub(super) fn standing(&self, current: Option<&Roster>) -> Standing {
        Standing::determine(&self.process, self.record.as_ref(), current)
    }

    /// What the machine of an operator knows of it.
    pub(super) fn answer(&self) -> Answer {
        Answer {
            address: self.address.clone(),
            process: self.process.clone(),
            roster: self.roster().cloned(),
            is_admitted: self.votes(),
            is_fit: self.unfit.is_none(),
        }
    }

    pub(super) async fn persistence(&self) -> Result<Persistence, PeerError> {
        let persistence = Persistence::read(&mut self.connection.clone()).await;
        persistence.map_err(|error| self.error(&error))
    }

    pub(super) fn error(&self, error: &RedisError) -> PeerError {
        PeerError { address: self.address.clone(), reason: error.to_string() }
    }
}
