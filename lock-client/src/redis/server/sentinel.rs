//! A primary that Redis Sentinels know.

use std::fmt;

use redis::{
    Client, IntoConnectionInfo, RedisResult, TlsMode,
    aio::MultiplexedConnection,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use tokio::sync::Mutex;

use super::{
    super::settings::{TimeLimits, tcp_settings, within},
    hosts::Hosts,
    url::{InvalidRedisUrl, RedisUrl},
};

const SENTINEL_PORT: u16 = 26379;

/// A primary that Sentinels know.
pub(super) struct Sentinels {
    client: Mutex<SentinelClient>,
    primary: String,
    hosts: String,
}

impl Sentinels {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidRedisUrl> {
        let scheme = url.node_scheme;
        let hosts = Hosts::parse(url.rest)?;
        let (primary, database) = hosts.path.split_once('/').unwrap_or((hosts.path, ""));
        if primary.is_empty() {
            return Err(InvalidRedisUrl::new(
                "/NAME, the primary's name, must follow the Sentinels",
            ));
        }
        let primary = primary.to_owned();
        // Only the user, the password and the database of this URL are used.
        let redis =
            format!("{scheme}://{}primary/{database}", hosts.user).into_connection_info()?;
        let mut node = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(redis.redis_settings().clone())
            .set_tcp_settings(tcp_settings());
        if scheme == "rediss" {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        // The password is Redis'. The Sentinels are asked without one.
        let sentinels = hosts.connection_infos(scheme, "", SENTINEL_PORT)?;
        let master = SentinelServerType::Master;
        let client = SentinelClient::build(sentinels, primary.clone(), Some(node), master)?;
        Ok(Self { client: Mutex::new(client), primary: primary.to_owned(), hosts: hosts.names() })
    }

    /// Connects to the present primary.
    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<MultiplexedConnection> {
        let settings = limits.settings();
        let connecting =
            async { self.client.lock().await.get_async_connection_with_config(&settings).await };
        within(limits.finding(), connecting).await
    }

    /// Returns a client of the present primary.
    pub(super) async fn primary(&self, limits: TimeLimits) -> RedisResult<Client> {
        let finding = async { self.client.lock().await.async_get_client().await };
        within(limits.finding(), finding).await
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary {} of the Sentinels {}", self.primary, self.hosts)
    }
}
