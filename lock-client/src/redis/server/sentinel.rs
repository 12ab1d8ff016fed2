//! A primary that Redis Sentinels know.

use std::fmt;

use redis::{
    Client, ConnectionAddr, RedisConnectionInfo, RedisResult, TlsMode,
    aio::MultiplexedConnection,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};

use super::{
    super::settings::{TimeLimits, tcp_settings, within},
    certificates::Certificates,
    url::{RedisUrl, SENTINEL_PASSWORD, SENTINEL_USER, USER_WITHOUT_PASSWORD, connection_settings},
};
use crate::service_url::{InvalidUrl, addresses, decoded};

/// A primary that Sentinels know.
pub(super) struct Sentinels {
    addresses: Vec<ConnectionAddr>,
    /// The user at the Sentinels.
    user: Option<String>,
    password: Option<String>,
    /// The user, the password and the database of the primary.
    redis: RedisConnectionInfo,
    is_encrypted: bool,
    certificates: Certificates,
    primary: String,
    hosts: String,
}

impl Sentinels {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidUrl> {
        let parts = &url.parts;
        let (primary, database) = parts.path.split_once('/').unwrap_or((&parts.path, ""));
        if primary.is_empty() {
            return Err(InvalidUrl::new("/NAME, the primary's name, must follow the Sentinels"));
        }
        let redis = connection_settings(parts)?;
        let setting = |name| parts.settings.get(name).map(str::to_owned);
        let (user, password) = (setting(SENTINEL_USER), setting(SENTINEL_PASSWORD));
        if user.is_some() && password.is_none() {
            return Err(InvalidUrl::new(USER_WITHOUT_PASSWORD));
        }
        Ok(Self {
            addresses: url.addresses(),
            user,
            password,
            redis: redis.set_db(url.database(database)?),
            is_encrypted: url.is_encrypted,
            certificates: Certificates::open(url)?,
            primary: decoded(primary)?,
            hosts: addresses(&parts.members),
        })
    }

    /// Makes a client, which connects to the Sentinels with the certificates of this moment.
    fn client(&self) -> RedisResult<SentinelClient> {
        let addresses = self.addresses.iter().cloned();
        let master = SentinelServerType::Master;
        let mut builder = SentinelClientBuilder::new(addresses, &self.primary, master)?
            .set_client_to_sentinel_tcp_settings(tcp_settings())
            .set_client_to_redis_tcp_settings(tcp_settings())
            .set_client_to_redis_protocol(self.redis.protocol())
            .set_client_to_redis_db(self.redis.db());
        if let Some(user) = self.redis.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = self.redis.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = &self.user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if self.is_encrypted {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        #[cfg(feature = "tls")]
        if let Some(named) = self.certificates.current().pem() {
            builder = builder
                .set_client_to_sentinel_certificates(named.clone())
                .set_client_to_redis_certificates(named);
        }
        builder.build()
    }

    /// Connects to the present primary.
    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<MultiplexedConnection> {
        let (mut client, settings) = (self.client()?, limits.settings());
        within(limits.finding(), client.get_async_connection_with_config(&settings)).await
    }

    /// Returns a client of the present primary.
    pub(super) async fn primary(&self, limits: TimeLimits) -> RedisResult<Client> {
        let mut client = self.client()?;
        within(limits.finding(), client.async_get_client()).await
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary {} of the Sentinels {}", self.primary, self.hosts)
    }
}
