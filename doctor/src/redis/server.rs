//! The connections to a Redis.

use std::{fmt, io, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, RedisResult,
    aio::{ConnectionLike, MultiplexedConnection, PubSub},
};
use tokio::time::timeout;

const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that answers.
pub struct Server {
    client: Client,
    /// The connection for everything except subscriptions.
    pub commands: MultiplexedConnection,
}

impl Server {
    /// Connects to the server of a client.
    ///
    /// # Errors
    /// If the server does not answer, or rejects everything because it wants a password.
    pub async fn connect(client: Client) -> RedisResult<Self> {
        let config = config();
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut commands = connecting.await?;
        let answer: RedisResult<()> = ::redis::cmd("PING").query_async(&mut commands).await;
        match answer {
            Err(error) if error.code() == Some("NOAUTH") => Err(error),
            // The server has answered. If it rejects PING alone, it can still be examined.
            answer => {
                let _ = separate_error_reply(answer)?;
                Ok(Self { client, commands })
            }
        }
    }

    /// The user that the URL names.
    pub fn user(&self) -> String {
        let settings = self.client.get_connection_info().redis_settings();
        settings.username().unwrap_or("default").to_owned()
    }

    /// The address, without a password.
    pub fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Opens another connection for commands.
    pub(super) async fn another(&self) -> RedisResult<MultiplexedConnection> {
        self.client.get_multiplexed_async_connection_with_config(&config()).await
    }

    /// Connects to another node of the same Redis Cluster, with the same user and certificates.
    pub(super) async fn another_at(&self, address: &str) -> RedisResult<MultiplexedConnection> {
        let parsed =
            address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parsed else {
            return Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
        };
        let (info, host) = (self.client.get_connection_info(), host.to_owned());
        let address = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let client = Client::open(info.clone().set_addr(address))?;
        client.get_multiplexed_async_connection_with_config(&config()).await
    }

    /// Opens a connection for subscriptions.
    ///
    /// # Errors
    /// If the server does not answer, or rejects the connection.
    pub async fn subscriber(&self) -> RedisResult<PubSub> {
        let connecting = timeout(CONNECTION_TIMEOUT, self.client.get_async_pubsub());
        connecting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.address()).finish()
    }
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
}

/// An error reply of the server.
#[derive(Clone, Debug)]
pub struct ErrorReply {
    code: String,
    reason: String,
}

impl ErrorReply {
    /// Whether another node of the Redis Cluster has the key.
    pub fn is_moved(&self) -> bool {
        self.code == "MOVED"
    }
}

impl fmt::Display for ErrorReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Sends a command that the server may reject.
///
/// # Errors
/// If there was no reply.
pub async fn ask<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    command: &Cmd,
) -> RedisResult<Result<T, ErrorReply>> {
    separate_error_reply(command.query_async(connection).await)
}

/// Separates an error reply, the inner error, from a missing reply, the outer one.
///
/// # Errors
/// If there was no reply.
pub fn separate_error_reply<T>(result: RedisResult<T>) -> RedisResult<Result<T, ErrorReply>> {
    match result {
        Ok(answer) => Ok(Ok(answer)),
        Err(error) if error.is_io_error() || error.is_unrecoverable_error() => Err(error),
        // This includes a reply of an unexpected type.
        Err(error) => Ok(Err(ErrorReply {
            code: error.code().unwrap_or_default().to_owned(),
            reason: match (error.code(), error.detail()) {
                (Some(code), Some(detail)) => format!("{code} {detail}"),
                _ => error.to_string(),
            },
        })),
    }
}
