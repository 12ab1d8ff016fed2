//! One connection, and the record of what it has sent and left unanswered.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use super::{
    script::{Call, Script},
    transport::Transport,
};
use crate::clock::Moment;

/// One connection. Its clones share the record of what it has sent and left unanswered.
#[derive(Clone)]
pub(crate) struct Line {
    transport: Transport,
    unanswered: Arc<Mutex<Unanswered>>,
    /// The scripts that were sent in full.
    sent: Arc<Mutex<Vec<&'static Script>>>,
}

/// The requests since the last answer.
#[derive(Clone, Copy, Default)]
struct Unanswered {
    requests: u32,
    /// When the first of them was sent.
    since: Option<Moment>,
}

impl Line {
    pub(crate) fn new(transport: Transport) -> Self {
        Self { transport, unanswered: Arc::default(), sent: Arc::default() }
    }

    /// Runs a script in one round trip, or in two if Redis has forgotten it.
    ///
    /// The first time, the script is sent in full. If it were sent by its hash alone and then again
    /// in full, a later request could overtake it.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, call: &Call) -> RedisResult<T> {
        {
            let mut unanswered = self.unanswered();
            unanswered.requests += 1;
            unanswered.since.get_or_insert_with(Moment::now);
        }
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
        if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Io) {
            *self.unanswered() = Unanswered::default();
        }
        answer
    }

    /// Returns whether a script was sent before, and records that it was.
    fn was_sent(&self, script: &'static Script) -> bool {
        let mut sent = self.sent.lock().expect("nothing panics while it holds this");
        let was_sent = sent.iter().any(|known| std::ptr::eq(*known, script));
        if !was_sent {
            sent.push(script);
        }
        was_sent
    }

    /// The time since the first request that was sent after the last answer.
    pub(crate) fn silence(&self) -> Duration {
        self.unanswered().since.map_or(Duration::ZERO, Moment::elapsed)
    }

    /// The number of requests since the last answer.
    #[cfg(feature = "redlock")]
    pub(crate) fn unanswered_requests(&self) -> u32 {
        self.unanswered().requests
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered.lock().expect("nothing panics while it holds this")
    }

    /// Whether both are clones of one connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.unanswered, &other.unanswered)
    }

    /// Whether an error means that a new connection is needed: this one is lost, or its server is
    /// not the primary. A single answer that is late does not mean that.
    pub(crate) fn is_broken_by(&self, error: &RedisError) -> bool {
        let broken = error.is_unrecoverable_error()
            || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        broken && self.transport.single_node().is_some()
    }
}
