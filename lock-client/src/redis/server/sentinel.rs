//! A primary that Redis Sentinels know.

use std::fmt;

use redis::{
    Client, IntoConnectionInfo, RedisResult, TlsMode,
    aio::MultiplexedConnection,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::sync::Mutex;

use super::{
    super::settings::{TimeLimits, tcp_settings, within},
    certificates::{self, Certificates},
    hosts::Hosts,
    url::{InvalidRedisUrl, RedisUrl, SENTINEL_PASSWORD, check_user},
};

const SENTINEL_PORT: u16 = 26379;
/// The setting with the user at the Sentinels.
const SENTINEL_USER: &str = "sentinel-user";

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
        let own = [SENTINEL_USER, SENTINEL_PASSWORD];
        if let Some(other) = url.query.other_than(&[&own[..], &certificates::SETTINGS].concat()) {
            return Err(InvalidRedisUrl::unknown_setting(other));
        }
        let certificates = Certificates::read(&url.query, scheme)?;
        let sentinels = hosts.clients(scheme, "", SENTINEL_PORT, &certificates)?;
        let addresses = sentinels.iter().map(|client| client.get_connection_info().addr().clone());
        let master = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(addresses, &primary, master)?
            .set_client_to_sentinel_tcp_settings(tcp_settings())
            .set_client_to_redis_tcp_settings(tcp_settings());
        // Only the user, the password and the database of this URL are used.
        let redis =
            format!("{scheme}://{}primary/{database}", hosts.user).into_connection_info()?;
        let redis = redis.redis_settings();
        check_user(redis)?;
        builder = builder.set_client_to_redis_db(redis.db());
        if let Some(user) = redis.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = redis.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = url.query.get(SENTINEL_USER) {
            if url.query.get(SENTINEL_PASSWORD).is_none() {
                return Err(InvalidRedisUrl::user_without_password());
            }
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = url.query.get(SENTINEL_PASSWORD) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if scheme == "rediss" {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        #[cfg(feature = "tls")]
        if let Some(named) = certificates.named {
            builder = builder.set_client_to_redis_certificates(named);
        }
        Ok(Self { client: Mutex::new(builder.build()?), primary, hosts: hosts.names() })
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
