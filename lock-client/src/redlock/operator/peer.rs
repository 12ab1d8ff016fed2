//! A server that an operator is connected to.

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::time::timeout;

use crate::{
    redis::{
        TimeLimits,
        keys::Keys,
        script::{Script, script},
    },
    redlock::{
        machines::takeover::Answer,
        node_urls::NodeUrl,
        record::{Fields, Record, read_process, vote},
        roster::{Roster, Standing},
        state::State,
    },
};

static CHANGE: Script = script!("../run_id.lua", "change.lua");

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
    /// [`Unreachable`](State::Unreachable), or [`Unreadable`](State::Unreadable).
    pub(super) state: State,
    /// Whether nobody answers there. A server that answers anything at all may vote.
    pub(super) is_gone: bool,
}

impl PeerError {
    /// No connection, or no answer that can be read.
    pub(super) fn new(address: &str, reason: impl ToString) -> Self {
        let (address, reason) = (address.to_owned(), reason.to_string());
        Self { address, reason, state: State::Unreachable, is_gone: false }
    }

    fn on_connecting(address: &str, error: &RedisError) -> Self {
        let reason = error.to_string();
        // A host that is down, and a name that nobody has any more.
        let no_host = ["No route to host", "Network is unreachable", "Name or service not known"];
        let is_gone = error.is_connection_refusal()
            || error.is_timeout()
            || no_host.iter().any(|text| reason.contains(text));
        let state = match error.is_io_error() {
            true => State::Unreachable,
            false => State::Unreadable,
        };
        Self { state, is_gone, ..Self::new(address, reason) }
    }
}

impl Peer {
    /// Connects to a server, and reads its record.
    pub(super) async fn connect(url: &NodeUrl, limits: TimeLimits) -> Result<Self, PeerError> {
        // A server that hangs must not hold up the others.
        match timeout(limits.answer * 4, Self::read(url, limits)).await {
            Ok(connected) => {
                connected.map_err(|error| PeerError::on_connecting(&url.address, &error))
            }
            Err(_) => Err(PeerError {
                is_gone: true,
                ..PeerError::new(&url.address, "no answer in time")
            }),
        }
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

    /// The last roster of a cluster to which the server's data belong.
    pub(super) fn last_roster(&self) -> Option<&Roster> {
        self.record.as_ref()?.last_roster()
    }

    /// Whether a start has prepared this process, and admitted nobody there.
    pub(super) fn is_prepared_only(&self) -> bool {
        let has_seat = |record: &Record| record.roster.seat_of(&self.process).is_some();
        self.record.as_ref().is_some_and(|own| own.is_prepared_only() && has_seat(own))
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
        self.answer_of(self.process.clone(), self.record.as_ref())
    }

    // Each request is computed from what was seen, and changes nothing unless that is still so.

    fn standing(&self) -> Standing<'_> {
        let (roster, retired) = (self.roster(), self.retired_from());
        Standing { process: &self.process, roster, votes: self.votes(), retired }
    }

    /// Has a process without a vote hold this roster, and deletes its locks: a lease might count them.
    pub(super) async fn prepare(&self, roster: &Roster) -> Result<Answer, PeerError> {
        let next = Record::prepared(roster.clone(), self.record.as_ref());
        let next = self.standing().may_be_prepared(roster).then_some(next);
        self.change(next, "fenced:{*}:lock").await
    }

    /// Exchanges exactly this roster for another. From then on, the process rejects all votes for the roster
    /// before. If it was admitted, it votes for the new one.
    pub(super) async fn close(&self, from: &Roster, to: &Roster) -> Result<Answer, PeerError> {
        let vote = self.votes().then(|| vote(to, &self.process));
        let own = self.record.clone().filter(|_| self.standing().may_be_closed(from, to));
        self.change(own.map(|own| Record { roster: to.clone(), vote, ..own }), "").await
    }

    /// Gives the process its vote.
    pub(super) async fn admit(&self, roster: &Roster) -> Result<Answer, PeerError> {
        let admitted = Record::new(roster.clone(), &self.process, true);
        self.change(self.standing().may_be_admitted(roster).then_some(admitted), "").await
    }

    /// Takes the vote of a process away, before its cluster is started anew. Notes that it had one: its
    /// counters are those of a voter. So a start that was interrupted can be repeated.
    pub(super) async fn retire(&self) -> Result<Answer, PeerError> {
        let voting = self.record.clone().filter(|_| self.votes());
        let next = voting.map(|own| {
            let retired = Some((self.process.clone(), own.roster.clone()));
            Record { vote: None, retired, ..own }
        });
        self.change(next, "").await
    }

    /// Changes the record. Without a change, returns what was seen.
    async fn change(&self, next: Option<Record>, locks: &str) -> Result<Answer, PeerError> {
        let Some(next) = next else { return Ok(self.answer()) };
        let call = CHANGE.with([Keys::NODE.to_owned()]).arg(&self.process);
        let seen = self.record.as_ref().map(Record::fields).unwrap_or_default();
        let call = call.arg(&seen[..]).arg(&next.fields()[..]).arg(locks);
        let changed = call.in_full().query_async(&mut self.connection.clone()).await;
        let (process, fields): (String, Fields) = changed.map_err(|error| self.error(&error))?;
        let record = Record::parse(fields).map_err(|error| self.error(&error))?;
        Ok(self.answer_of(process, record.as_ref()))
    }

    fn answer_of(&self, process: String, record: Option<&Record>) -> Answer {
        Answer {
            address: self.address.clone(),
            roster: record.map(|record| record.roster.clone()),
            is_admitted: record.is_some_and(|record| record.admits(&process)),
            is_fit: self.unfit.is_none(),
            process,
        }
    }

    pub(super) fn error(&self, error: &RedisError) -> PeerError {
        PeerError::new(&self.address, error)
    }
}
