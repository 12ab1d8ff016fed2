//! One connection, and the record of what it has sent and left unanswered.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::{ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use super::{
    script::{Call, Script},
    transport::Transport,
};
use crate::{clock::Moment, mutex::Locked};

/// How long a connection is without answers before it counts as idle. By then, TCP has given up what
/// it had sent and what was not acknowledged: see the settings.
const IDLE: Duration = Duration::from_secs(2);

/// One connection. Its clones share the record of what it has sent and left unanswered.
#[derive(Clone)]
pub(crate) struct Line {
    transport: Transport,
    record: Arc<Mutex<Record>>,
    sent: Arc<Mutex<Vec<&'static Script>>>,
}

#[derive(Clone, Copy)]
struct Record {
    /// When the last answer came, or the connection was made.
    answered: Moment,
    unanswered: u32,
    /// When the first of them was sent.
    since: Option<Moment>,
}

impl Record {
    fn new() -> Self {
        Self { answered: Moment::now(), unanswered: 0, since: None }
    }
}

impl Line {
    pub(crate) fn new(transport: Transport) -> Self {
        let record = Arc::new(Mutex::new(Record::new()));
        Self { transport, record, sent: Arc::default() }
    }

    /// Runs a script in one round trip, or in two if Redis has forgotten it.
    ///
    /// The first time, the script is sent in full. If it were sent by its hash alone and then again
    /// in full, a later request could overtake it.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, call: &Call) -> RedisResult<T> {
        self.record_request();
        let answer = if self.was_sent(call.script()) {
            match self.transport.query(call.by_hash()).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.transport.query(&call.in_full()).await
                }
                answer => answer,
            }
        } else {
            self.transport.query(&call.in_full()).await
        };
        self.record_answer(&answer);
        answer
    }

    /// Asks for an answer.
    pub(crate) async fn ping(&mut self) -> RedisResult<()> {
        self.record_request();
        let answer = self.transport.query(&redis::cmd("PING")).await;
        self.record_answer(&answer);
        answer
    }

    fn record_request(&self) {
        let mut record = self.record.locked();
        record.unanswered += 1;
        record.since.get_or_insert_with(Moment::now);
    }

    fn record_answer<T>(&self, answer: &RedisResult<T>) {
        if !matches!(answer, Err(error) if error.kind() == ErrorKind::Io) {
            *self.record.locked() = Record::new();
        }
    }

    fn was_sent(&self, script: &'static Script) -> bool {
        let mut sent = self.sent.locked();
        let was_sent = sent.iter().any(|known| std::ptr::eq(*known, script));
        if !was_sent {
            sent.push(script);
        }
        was_sent
    }

    /// The time since the first request that was sent after the last answer.
    pub(crate) fn silence(&self) -> Duration {
        self.record.locked().since.map_or(Duration::ZERO, Moment::elapsed)
    }

    /// Whether it has not answered since it was idle. Then it may have been dropped in silence.
    pub(super) fn is_silent_since_idle(&self) -> bool {
        let record = self.record.locked();
        record.since.is_some_and(|since| record.answered + IDLE <= since)
    }

    pub(crate) fn unanswered_requests(&self) -> u32 {
        self.record.locked().unanswered
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.record, &other.record)
    }

    /// Whether an error means that a new connection is needed: this one is lost, its server is not
    /// the primary, or it connects again with old certificates. A single answer that is late does
    /// not mean that.
    pub(crate) fn is_broken_by(&self, error: &RedisError) -> bool {
        if self.transport.single_node().is_none() {
            return error.code().is_none() && self.transport.has_old_certificates();
        }
        error.is_unrecoverable_error()
            || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
    }
}
