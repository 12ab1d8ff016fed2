//! The connections of the doctor, and what is asked over them.

use std::{fmt, io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, RedisResult,
    aio::{ConnectionLike, MultiplexedConnection, PubSub},
};
use tokio::time::timeout;

use super::Failure;

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that answers.
pub(super) struct Server {
    client: Client,
    /// The connection for everything but subscriptions.
    pub(super) commands: MultiplexedConnection,
}

impl Server {
    /// The user that the URL names.
    pub(super) fn user(&self) -> String {
        let settings = self.client.get_connection_info().redis_settings();
        settings.username().unwrap_or("default").to_owned()
    }

    /// Makes a connection for subscriptions.
    pub(super) async fn subscriber(&self) -> RedisResult<PubSub> {
        let connecting = timeout(CONNECTION_TIMEOUT, self.client.get_async_pubsub());
        connecting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// Connects to the server at a URL: behind Sentinels, the primary; of a Cluster, one of the nodes named.
pub(super) async fn connect(url: &str) -> Result<Server, Failure> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT));
    let redis =
        lock_client::redis::Server::open(url).map_err(|error| Failure::Usage(error.to_string()))?;
    let client = redis.node().await.map_err(unavailable)?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut commands = connecting.await.map_err(unavailable)?;
    match ask::<()>(&mut commands, &redis::cmd("PING")).await.map_err(unavailable)? {
        // Everything else would be refused, too.
        Err(Refusal { reason, code }) if code == "NOAUTH" => Err(Failure::Unavailable(reason)),
        // It has answered. If it refuses PING alone, that is no matter.
        _ => Ok(Server { client, commands }),
    }
}

pub(super) fn unavailable(error: RedisError) -> Failure {
    Failure::Unavailable(format!("no answer from Redis: {error}"))
}

/// What the server said instead of an answer.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    code: String,
    reason: String,
}

impl Refusal {
    /// Whether this node of a Cluster is the wrong one to ask.
    pub(super) fn is_of_another_node(&self) -> bool {
        self.code == "MOVED"
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Asks the server for something that it may refuse to tell.
///
/// # Errors
/// If there was no answer at all.
pub(super) async fn ask<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    command: &Cmd,
) -> RedisResult<Result<T, Refusal>> {
    heard(command.query_async(connection).await)
}

/// Tells a refusal from no answer at all.
pub(super) fn heard<T>(result: RedisResult<T>) -> RedisResult<Result<T, Refusal>> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
        // An answer of another kind than was asked for tells nothing, either.
        Err(error) => Ok(Err(Refusal {
            code: error.code().unwrap_or_default().to_owned(),
            reason: match (error.code(), error.detail()) {
                (Some(code), Some(detail)) => format!("{code} {detail}"),
                _ => error.to_string(),
            },
        })),
    }
}
