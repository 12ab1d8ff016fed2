//! The connection that all requests of a client share.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
};
use tokio::sync::Mutex;

use super::{script::Call, server::Server};
use crate::backend::BackendError;

/// How long a request may take. A lock service that answers later than this is told as silent.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// The connection that all requests of a client share. It is made when it is first needed, and again
/// when it was lost or leads to a server that doesn't take writes any more.
#[derive(Clone)]
pub(super) struct Connection {
    server: Arc<Server>,
    current: Arc<Mutex<Current>>,
}

#[derive(Default)]
struct Current {
    link: Option<Link>,
    /// How many links there have been.
    generation: u64,
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
        let (mut link, generation) = self.link().await?;
        let answer = match link.query(&call.by_hash()).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.query(&call.in_full()).await
            }
            answer => answer,
        };
        if let Err(error) = &answer
            && is_over(error)
        {
            self.give_up(generation).await;
        }
        Ok(answer?)
    }

    async fn link(&self) -> RedisResult<(Link, u64)> {
        let mut current = self.current.lock().await;
        let link = match &current.link {
            Some(link) => link.clone(),
            None => {
                let link = self.server.connect().await?;
                current.generation += 1;
                current.link.insert(link).clone()
            }
        };
        Ok((link, current.generation))
    }

    /// Gives a link up, unless there is a newer one.
    async fn give_up(&self, generation: u64) {
        let mut current = self.current.lock().await;
        if current.generation == generation && matches!(current.link, Some(Link::Node(_))) {
            current.link = None;
        }
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

/// Whether a connection is of no more use: it is lost, or its server is not, or no longer, the
/// primary. A timeout alone is no such reason: over a new connection, a release would overtake the
/// acquire that it is to undo.
fn is_over(error: &RedisError) -> bool {
    error.is_unrecoverable_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

impl From<RedisError> for BackendError {
    fn from(error: RedisError) -> Self {
        let passing = matches!(
            error.kind(),
            ErrorKind::Io
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
        ) || error.code() == Some("NOREPLICAS");
        if passing { Self::Unavailable(error.into()) } else { Self::Rejected(error.into()) }
    }
}
