//! The connection that all requests of a client share.

use std::{
    sync::{Arc, MutexGuard},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
};
use tokio::sync::Mutex;

use super::{script::Call, server::Server};
use crate::{backend::BackendError, clock::Moment};

/// How long a request may take. A lock service that answers later than this is told as silent.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// For how long a link may leave everything unanswered, until another is tried. It is longer than an
/// acquire and its undoing wait for their answers: over another link, a release would overtake the
/// acquire that it is to undo, if the server goes on.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// The connection that all requests of a client share. It is made when it is first needed, and again
/// when it was lost, has been silent for too long, or leads to a server that doesn't take writes any
/// more.
#[derive(Clone)]
pub(super) struct Connection {
    server: Arc<Server>,
    current: Arc<Mutex<Option<Line>>>,
}

/// A link, and what is known of it.
#[derive(Clone)]
struct Line {
    link: Link,
    /// When the first request was sent since the last answer.
    unanswered_since: Arc<std::sync::Mutex<Option<Moment>>>,
}

/// What requests are sent over.
#[derive(Clone)]
pub(super) enum Link {
    Node(MultiplexedConnection),
    /// It finds its nodes, and reconnects to them, by itself.
    Cluster(ClusterConnection),
}

/// The settings of a connection to a single node.
pub(super) fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(super::server::CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

impl Connection {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self { server, current: Arc::default() }
    }

    /// Runs a script in one round trip, or two where this Redis doesn't know it.
    pub(super) async fn run<T: FromRedisValue>(&self, call: &Call) -> Result<T, BackendError> {
        let mut line = self.line().await?;
        line.ask();
        let answer = match line.link.query(&call.by_hash()).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                line.link.query(&call.in_full()).await
            }
            answer => answer,
        };
        match &answer {
            Err(error) if line.is_over(error) => self.give_up(&line).await,
            Err(error) if error.kind() == ErrorKind::Io => {}
            _ => line.hear(),
        }
        Ok(answer?)
    }

    async fn line(&self) -> RedisResult<Line> {
        let mut current = self.current.lock().await;
        match &*current {
            Some(line) if !line.is_silent() => Ok(line.clone()),
            _ => {
                // Until there is another, the silent one stays. What is rare is boxed, so that thousands
                // of requests under way don't each have the memory for it.
                let link = Box::pin(self.server.connect()).await?;
                Ok(current.insert(Line { link, unanswered_since: Arc::default() }).clone())
            }
        }
    }

    /// Gives a line up, unless there is a newer one.
    async fn give_up(&self, line: &Line) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| current.is(line)) {
            *current = None;
        }
    }
}

impl Line {
    fn ask(&self) {
        self.unanswered_since().get_or_insert_with(Moment::now);
    }

    fn hear(&self) {
        *self.unanswered_since() = None;
    }

    fn is_silent(&self) -> bool {
        self.unanswered_since().is_some_and(|since| since.elapsed() > LONGEST_SILENCE)
    }

    fn unanswered_since(&self) -> MutexGuard<'_, Option<Moment>> {
        self.unanswered_since.lock().expect("nothing panics while it has this")
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.unanswered_since, &other.unanswered_since)
    }

    /// Whether it is of no more use: it is lost, or its server is not, or no longer, the primary. One
    /// answer that doesn't come in time is no such reason.
    fn is_over(&self, error: &RedisError) -> bool {
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
