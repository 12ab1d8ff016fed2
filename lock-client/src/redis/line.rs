//! A line to a server: what requests are sent over, and whether they are answered.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
};

use super::{
    script::{Call, Script},
    server::CONNECTION_TIMEOUT,
};
use crate::{backend::BackendError, clock::Moment};

/// How long a request may take. A lock service that answers later than this is told as silent.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A link, and what is known of it.
#[derive(Clone)]
pub(crate) struct Line {
    link: Link,
    unanswered: Arc<Mutex<Unanswered>>,
    /// The scripts that were sent over it in full.
    sent: Arc<Mutex<Vec<&'static Script>>>,
}

/// What was sent since the last answer.
#[derive(Clone, Copy, Default)]
struct Unanswered {
    requests: u32,
    /// When the first of them was sent.
    since: Option<Moment>,
}

/// What requests are sent over.
#[derive(Clone)]
pub(crate) enum Link {
    Node(MultiplexedConnection),
    /// It finds its nodes, and reconnects to them, by itself.
    Cluster(ClusterConnection),
}

/// The settings of a connection to a single node.
pub(super) fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

impl Line {
    pub(crate) fn over(link: Link) -> Self {
        Self { link, unanswered: Arc::default(), sent: Arc::default() }
    }

    /// Runs a script in one round trip, or two where Redis has forgotten it.
    ///
    /// The first time, the script is sent whole: what is sent later can't overtake it then, as it could
    /// overtake one that has to be sent again.
    pub(crate) async fn run<T: FromRedisValue>(&mut self, call: &Call) -> RedisResult<T> {
        {
            let mut unanswered = self.unanswered();
            unanswered.requests += 1;
            unanswered.since.get_or_insert_with(Moment::now);
        }
        let answer = if self.knows(call.script()) {
            match self.link.query(call.by_hash()).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.link.query(&call.in_full()).await
                }
                answer => answer,
            }
        } else {
            self.link.query(&call.in_full()).await
        };
        if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Io) {
            *self.unanswered() = Unanswered::default();
        }
        answer
    }

    /// Whether a script was sent over this line before; from now on it was.
    fn knows(&self, script: &'static Script) -> bool {
        let mut sent = self.sent.lock().expect("nothing panics while it has this");
        let knows = sent.iter().any(|known| std::ptr::eq(*known, script));
        if !knows {
            sent.push(script);
        }
        knows
    }

    /// For how long everything has been left unanswered.
    pub(crate) fn silence(&self) -> Duration {
        self.unanswered().since.map_or(Duration::ZERO, Moment::elapsed)
    }

    /// How many requests were sent since the last answer.
    pub(crate) fn unanswered_requests(&self) -> u32 {
        self.unanswered().requests
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        self.unanswered.lock().expect("nothing panics while it has this")
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.unanswered, &other.unanswered)
    }

    /// Whether it is of no more use: it is lost, or its server is not, or no longer, the primary. One
    /// answer that doesn't come in time is no such reason.
    pub(crate) fn is_over(&self, error: &RedisError) -> bool {
        let over = error.is_unrecoverable_error()
            || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        over && matches!(self.link, Link::Node(_))
    }
}

impl Link {
    async fn query<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> RedisResult<T> {
        async fn on<T: FromRedisValue>(
            connection: &mut impl ConnectionLike,
            command: &redis::Cmd,
        ) -> RedisResult<T> {
            command.query_async(connection).await
        }
        match self {
            Self::Node(connection) => on(connection, command).await,
            Self::Cluster(connection) => on(connection, command).await,
        }
    }
}

impl From<RedisError> for BackendError {
    fn from(error: RedisError) -> Self {
        let passing = matches!(
            error.kind(),
            ErrorKind::Io
                // An answer that isn't understood comes after what was asked for.
                | ErrorKind::Parse
                | ErrorKind::UnexpectedReturnType
                | ErrorKind::ClusterConnectionNotFound
                | ErrorKind::MasterNameNotFoundBySentinel
                | ErrorKind::NoValidReplicasFoundBySentinel
                | ErrorKind::Server(
                    ServerErrorKind::BusyLoading
                        | ServerErrorKind::ClusterDown
                        | ServerErrorKind::MasterDown
                        | ServerErrorKind::ReadOnly
                        | ServerErrorKind::TryAgain
                        | ServerErrorKind::Moved
                        | ServerErrorKind::Ask
                )
        ) || matches!(error.code(), Some("BUSY" | "MISCONF" | "NOREPLICAS"));
        if passing { Self::Unavailable(error.into()) } else { Self::Rejected(error.into()) }
    }
}
