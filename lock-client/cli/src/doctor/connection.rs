//! The connections of the doctor.

use std::{fmt, io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult,
    aio::{ConnectionLike, MultiplexedConnection, PubSub},
};
use tokio::time::timeout;

use crate::failure::{Failure, with_causes};

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that answers.
pub(super) struct Server {
    client: Client,
    /// The connection for everything except subscriptions.
    pub(super) commands: MultiplexedConnection,
}

impl Server {
    /// The user that the URL names.
    pub(super) fn user(&self) -> String {
        let settings = self.client.get_connection_info().redis_settings();
        settings.username().unwrap_or("default").to_owned()
    }

    /// Opens another connection for commands.
    pub(super) async fn another(&self) -> RedisResult<MultiplexedConnection> {
        self.client.get_multiplexed_async_connection_with_config(&config()).await
    }

    /// Opens a connection for subscriptions.
    pub(super) async fn subscriber(&self) -> RedisResult<PubSub> {
        let connecting = timeout(CONNECTION_TIMEOUT, self.client.get_async_pubsub());
        connecting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// The failure that this server does not answer any more.
    pub(super) fn unavailable(&self, error: &RedisError) -> Failure {
        unavailable(&address(&self.client), error)
    }
}

/// Connects to the server of a URL: behind Sentinels, to the primary; of a Redis Cluster, to one of
/// the named nodes.
pub(super) async fn connect(url: &str) -> Result<Server, Failure> {
    let redis = lock_client::redis::Server::open(url)?;
    let client = redis.node().await.map_err(|error| unavailable(&redis, &error))?;
    let address = address(&client);
    let unavailable = |error| unavailable(&address, &error);
    let config = config();
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut commands = connecting.await.map_err(unavailable)?;
    match ask::<()>(&mut commands, &redis::cmd("PING")).await.map_err(unavailable)? {
        // The server would reject everything else, too.
        Err(Rejection { reason, code }) if code == "NOAUTH" => {
            Err(Failure::Unavailable(format!("{address}: {reason}")))
        }
        // The server has answered. If it rejects PING alone, it can still be examined.
        _ => Ok(Server { client, commands }),
    }
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

/// The address of a server, without a password.
fn address(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

fn unavailable(server: &impl fmt::Display, error: &RedisError) -> Failure {
    let text = with_causes(error);
    Failure::Unavailable(if error.kind() == ErrorKind::AuthenticationFailed {
        format!("{server} rejected the password: {text}")
    } else if error.code().is_some() {
        format!("{server} rejected the connection: {text}")
    } else {
        format!("no answer from Redis at {server}: {text}")
    })
}

/// An error reply of the server.
#[derive(Clone, Debug)]
pub(super) struct Rejection {
    code: String,
    reason: String,
}

impl Rejection {
    /// Whether another node of the Redis Cluster has the key.
    pub(super) fn is_moved(&self) -> bool {
        self.code == "MOVED"
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Sends a command that the server may reject.
///
/// # Errors
/// If there was no reply.
pub(super) async fn ask<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    command: &Cmd,
) -> RedisResult<Result<T, Rejection>> {
    separate_rejection(command.query_async(connection).await)
}

/// Separates an error reply, the inner error, from a missing reply, the outer one.
pub(super) fn separate_rejection<T>(result: RedisResult<T>) -> RedisResult<Result<T, Rejection>> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
        // This includes a reply of an unexpected type.
        Err(error) => Ok(Err(Rejection {
            code: error.code().unwrap_or_default().to_owned(),
            reason: match (error.code(), error.detail()) {
                (Some(code), Some(detail)) => format!("{code} {detail}"),
                _ => error.to_string(),
            },
        })),
    }
}
