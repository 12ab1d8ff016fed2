//! One Redis, at a port or a Unix socket.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

#[cfg(feature = "redlock")]
use redis::ConnectionAddr;
use redis::{Client, ErrorKind, IntoConnectionInfo, RedisResult, aio::MultiplexedConnection};

use super::{
    super::settings::{TimeLimits, tcp_settings},
    certificates::Certificates,
    protocol::other_protocol,
    url::{InvalidRedisUrl, RedisUrl, check_user},
};

/// One Redis.
pub(super) struct Node {
    pub(super) client: Client,
    was_reached: AtomicBool,
}

impl Node {
    pub(super) fn parse(whole: &str, url: &RedisUrl<'_>) -> Result<Self, InvalidRedisUrl> {
        let certificates = Certificates::read(&url.query, url.node_scheme)?;
        let info = whole.into_connection_info()?.set_tcp_settings(tcp_settings());
        check_user(info.redis_settings())?;
        Ok(Self { client: certificates.client(info)?, was_reached: AtomicBool::new(false) })
    }

    /// Returns the node at another address, in the form in which addresses are displayed.
    #[cfg(feature = "redlock")]
    pub(super) fn at(&self, address: &str) -> Option<Self> {
        let info = self.client.get_connection_info().clone();
        let address = if address.starts_with('/') {
            ConnectionAddr::Unix(address.into())
        } else {
            let (host, port) = address.rsplit_once(':')?;
            let (host, port) = (host.to_owned(), port.parse().ok()?);
            match info.addr().clone() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    ConnectionAddr::TcpTls { host, port, insecure, tls_params }
                }
                _ => ConnectionAddr::Tcp(host, port),
            }
        };
        let client = Client::open(info.set_addr(address)).ok()?;
        Some(Self { client, was_reached: AtomicBool::new(false) })
    }

    /// Connects. If that fails the first time, something else than a Redis may be there.
    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<MultiplexedConnection> {
        let settings = limits.settings();
        let error = match self.client.get_multiplexed_async_connection_with_config(&settings).await
        {
            Ok(connection) => {
                self.was_reached.store(true, Ordering::Relaxed);
                return Ok(connection);
            }
            Err(error) => error,
        };
        let answered = error.code().is_some() || error.kind() == ErrorKind::AuthenticationFailed;
        if answered || self.was_reached.load(Ordering::Relaxed) || error.is_connection_refusal() {
            return Err(error);
        }
        let address = self.client.get_connection_info().addr();
        Err(other_protocol(address, limits.answer).await.unwrap_or(error))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.get_connection_info().addr().fmt(f)
    }
}
