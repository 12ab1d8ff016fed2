//! A primary that Redis Sentinels know.
//!
//! The client of the crate `redis` for Sentinels waits half a second for an answer, whatever the
//! settings say.

use std::{collections::HashMap, fmt};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, Role, aio::MultiplexedConnection,
};

use super::{
    super::{
        failure::is_passing,
        settings::{TimeLimits, tcp_settings, within},
    },
    certificates::{Certificates, UsedCertificates},
    url::{
        RedisUrl, SENTINEL_PASSWORD, SENTINEL_USER, USER_WITHOUT_PASSWORD, address,
        connection_settings, rejected,
    },
};
use crate::service_url::{InvalidUrl, addresses, decoded};

/// A primary that Sentinels know.
pub(super) struct Sentinels {
    /// The Sentinels, with the user there.
    sentinels: Vec<ConnectionInfo>,
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
        let mut user = RedisConnectionInfo::default();
        match [SENTINEL_USER, SENTINEL_PASSWORD].map(|name| parts.settings.get(name)) {
            [Some(_), None] => return Err(InvalidUrl::new(USER_WITHOUT_PASSWORD)),
            [Some(name), Some(password)] => user = user.set_username(name).set_password(password),
            [None, Some(password)] => user = user.set_password(password),
            [None, None] => {}
        }
        let sentinels = url.addresses().into_iter().map(|address| at(address, &user));
        Ok(Self {
            sentinels: sentinels.collect::<RedisResult<_>>().map_err(rejected)?,
            redis: redis.set_db(url.database(database)?),
            is_encrypted: url.is_encrypted,
            certificates: Certificates::open(url)?,
            primary: decoded(primary)?,
            hosts: addresses(&parts.members),
        })
    }

    /// Connects to the present primary.
    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<MultiplexedConnection> {
        self.find(limits).await.map(|(_, connection)| connection)
    }

    /// Returns a client of the present primary.
    pub(super) async fn primary(&self, limits: TimeLimits) -> RedisResult<Client> {
        self.find(limits).await.map(|(client, _)| client)
    }

    /// Asks all Sentinels at once, because one may hang, or name an earlier primary that hangs.
    async fn find(&self, limits: TimeLimits) -> RedisResult<(Client, MultiplexedConnection)> {
        let certificates = self.certificates.current();
        let ask = |sentinel| self.ask(sentinel, &certificates, limits);
        let mut answers: FuturesUnordered<_> = self.sentinels.iter().map(ask).collect();
        let finding = async {
            let mut last = None;
            while let Some(answer) = answers.next().await {
                match answer {
                    Ok(found) => return Ok(found),
                    // A rejection says more than a Sentinel that is down.
                    Err(error) if last.as_ref().is_none_or(is_passing) => last = Some(error),
                    Err(_) => {}
                }
            }
            Err(last.expect("a URL names at least one Sentinel"))
        };
        within(limits.finding(), finding).await
    }

    /// Asks one Sentinel for the primary, and connects to that.
    async fn ask(
        &self,
        sentinel: &ConnectionInfo,
        certificates: &UsedCertificates,
        limits: TimeLimits,
    ) -> RedisResult<(Client, MultiplexedConnection)> {
        let settings = limits.settings();
        let sentinel = certificates.client(sentinel.clone())?;
        let mut sentinel = sentinel.get_multiplexed_async_connection_with_config(&settings).await?;
        let known: Vec<HashMap<String, String>> =
            redis::cmd("SENTINEL").arg("MASTERS").query_async(&mut sentinel).await?;
        let named = known.iter().find_map(|fields| {
            fields.get("name").filter(|name| **name == self.primary)?;
            let (host, port) = (fields.get("ip")?.clone(), fields.get("port")?.parse().ok()?);
            Some(address(host, port, self.is_encrypted))
        });
        let named = named.ok_or_else(|| not_found("the Sentinels know no such primary"))?;
        let primary = certificates.client(at(named, &self.redis)?)?;
        let mut connection =
            primary.get_multiplexed_async_connection_with_config(&settings).await?;
        // Sentinels may not know yet that it is the primary no more.
        match redis::cmd("ROLE").query_async(&mut connection).await? {
            Role::Primary { .. } => Ok((primary, connection)),
            _ => Err(not_found("the Sentinels name a server that is not the primary")),
        }
    }
}

fn at(address: ConnectionAddr, settings: &RedisConnectionInfo) -> RedisResult<ConnectionInfo> {
    let info = address.into_connection_info()?.set_redis_settings(settings.clone());
    Ok(info.set_tcp_settings(tcp_settings()))
}

fn not_found(reason: &'static str) -> RedisError {
    RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, reason))
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "primary {} of the Sentinels {}", self.primary, self.hosts)
    }
}
