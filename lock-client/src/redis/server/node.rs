//! One Redis, at a port or a Unix socket.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisResult, aio::MultiplexedConnection,
};

use super::{
    super::settings::{TimeLimits, tcp_settings},
    certificates::Certificates,
    protocol::other_protocol,
    url::{RedisUrl, address_beside},
};
use crate::service_url::InvalidUrl;

pub(super) struct Node {
    pub(super) info: ConnectionInfo,
    certificates: Certificates,
    was_reached: AtomicBool,
}

impl Node {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidUrl> {
        let info = url.node()?.set_tcp_settings(tcp_settings());
        Ok(Self::new(info, Certificates::open(url)?))
    }

    fn new(info: ConnectionInfo, certificates: Certificates) -> Self {
        Self { info, certificates, was_reached: AtomicBool::new(false) }
    }

    /// Returns the node at another address, in the form in which addresses are displayed.
    pub(super) fn with_address(&self, address: &str) -> Option<Self> {
        let address = if address.starts_with('/') {
            ConnectionAddr::Unix(address.into())
        } else {
            let (host, port) = address.rsplit_once(':')?;
            address_beside(self.info.addr(), host.to_owned(), port.parse().ok()?)
        };
        Some(Self::new(self.info.clone().set_addr(address), self.certificates.clone()))
    }

    /// Its URL, without a user and a password.
    pub(super) fn url(&self) -> String {
        let scheme = match self.info.addr() {
            ConnectionAddr::Unix(_) => "redis+unix",
            ConnectionAddr::TcpTls { .. } => "rediss",
            _ => "redis",
        };
        format!("{scheme}://{self}")
    }

    pub(super) fn client(&self) -> RedisResult<Client> {
        self.certificates.current().client(self.info.clone())
    }

    /// Connects. If that fails the first time, something else than a Redis may be there.
    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<MultiplexedConnection> {
        let (client, settings) = (self.client()?, limits.settings());
        let error = match client.get_multiplexed_async_connection_with_config(&settings).await {
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
        Err(other_protocol(self.info.addr(), limits.answer).await.unwrap_or(error))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.addr().fmt(f)
    }
}
