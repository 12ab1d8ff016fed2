//! A server that an operator is connected to.

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::time::timeout;

use crate::{
    redis::{
        TimeLimits,
        keys::Keys,
        script::{Call, Script, script},
    },
    redlock::{
        machines::takeover::Answer,
        node_urls::NodeUrl,
        record::{Record, read_process},
        roster::Roster,
        state::State,
    },
};

static PREPARE: Script = script!("../run_id.lua", "state.lua", "prepare.lua");
static CLOSE: Script = script!("../run_id.lua", "state.lua", "close.lua");
static ADMIT: Script = script!("../run_id.lua", "state.lua", "admit.lua");
static RETIRE: Script = script!("../run_id.lua", "state.lua", "retire.lua");

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
    pub(super) unfit: Option<State>,
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
        // The caller limits the time to connect. Later requests may take longer than those for a lock.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(limits.answer * 10));
        let client = url.server.node().await?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let asked = Instant::now();
        let process = read_process(&mut connection).await?;
        let lag = asked.elapsed();
        let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
        let record = Record::read(&mut connection).await?;
        let unfit = State::unfit(&info);
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

    /// The longest ttl that a cluster grants whose roster is in the data.
    pub(super) fn longest_ttl_ms(&self) -> u64 {
        let rosters = self.record.iter().flat_map(Record::rosters);
        rosters.map(|roster| roster.max_ttl_ms).max().unwrap_or(0)
    }

    pub(super) fn state(&self, current: Option<&Roster>) -> State {
        State::determine(&self.process, self.record.as_ref(), current)
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

    // Each request that changes a record is one script. It compares before it changes anything, because a
    // request that arrives late must do no harm.

    /// Has a process without a vote hold this roster, if its data have not changed since the look.
    pub(super) async fn prepare(&self, roster: &Roster) -> Result<Answer, PeerError> {
        let seen = self.roster().map(ToString::to_string).unwrap_or_default();
        self.request(self.call(&PREPARE).arg(roster.to_string()).arg(seen)).await
    }

    /// Exchanges exactly this roster for another.
    pub(super) async fn close(&self, from: &Roster, to: &Roster) -> Result<Answer, PeerError> {
        self.request(self.call(&CLOSE).arg(from.to_string()).arg(to.to_string())).await
    }

    /// Gives the process its vote, if it holds exactly this roster.
    pub(super) async fn admit(&self, roster: &Roster) -> Result<Answer, PeerError> {
        self.request(self.call(&ADMIT).arg(roster.to_string())).await
    }

    /// Takes the vote of a process away that votes for this roster.
    pub(super) async fn retire(&self, roster: &Roster) -> Result<Answer, PeerError> {
        self.request(self.call(&RETIRE).arg(roster.to_string())).await
    }

    fn call(&self, script: &'static Script) -> Call {
        script.with([Keys::NODE.to_owned()]).arg(&self.process)
    }

    async fn request(&self, call: Call) -> Result<Answer, PeerError> {
        let state = call.in_full().query_async(&mut self.connection.clone()).await;
        let (process, roster, is_admitted): (_, Option<String>, _) =
            state.map_err(|error| self.error(&error))?;
        Ok(Answer {
            address: self.address.clone(),
            process,
            roster: roster.and_then(|text| Roster::parse(&text)),
            is_admitted,
            is_fit: self.unfit.is_none(),
        })
    }

    pub(super) fn error(&self, error: &RedisError) -> PeerError {
        PeerError { address: self.address.clone(), reason: error.to_string() }
    }
}
