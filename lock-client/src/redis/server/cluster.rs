//! A Redis Cluster.

use std::fmt;

use redis::{
    Client, ErrorKind, RedisError, RedisResult, cluster::ClusterClient,
    cluster_async::ClusterConnection,
};

use super::{
    super::settings::{TimeLimits, closed, tcp_settings, within},
    certificates::{self, Certificates},
    hosts::Hosts,
    url::{InvalidRedisUrl, RedisUrl, check_user},
};

const REDIS_PORT: u16 = 6379;

/// A Redis Cluster.
pub(super) struct Cluster {
    /// The nodes that the URL names. Each receives what is published on any node.
    named: Vec<Client>,
    #[cfg(feature = "tls")]
    certificates: Certificates,
    hosts: String,
}

impl Cluster {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidRedisUrl> {
        let hosts = Hosts::parse(url.rest)?;
        if !hosts.path.is_empty() {
            return Err(InvalidRedisUrl::new("a Cluster has no databases to choose from"));
        }
        if let Some(other) = url.query.other_than(&certificates::SETTINGS) {
            return Err(InvalidRedisUrl::unknown_setting(other));
        }
        let certificates = Certificates::read(&url.query, url.node_scheme)?;
        let named = hosts.clients(url.node_scheme, hosts.user, REDIS_PORT, &certificates)?;
        for node in &named {
            check_user(node.get_connection_info().redis_settings())?;
        }
        Ok(Self {
            named,
            #[cfg(feature = "tls")]
            certificates,
            hosts: hosts.names(),
        })
    }

    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<ClusterConnection> {
        let named = self.named.iter().map(|node| node.get_connection_info().clone());
        let builder = ClusterClient::builder(named);
        #[cfg(feature = "tls")]
        let builder = match &self.certificates.named {
            Some(named) => builder.certs(named.clone()),
            None => builder,
        };
        let client = builder
            .connection_timeout(limits.connecting())
            .response_timeout(limits.answer)
            .tcp_settings(tcp_settings())
            .build()?;
        match within(limits.finding(), client.get_async_connection()).await {
            Ok(connection) => Ok(connection),
            Err(error) => Err(self.rejected_password(limits).await.unwrap_or(error)),
        }
    }

    /// Asks the named nodes whether they reject the password. The `redis` crate reports all failures
    /// of a Cluster as lost connections.
    async fn rejected_password(&self, limits: TimeLimits) -> Option<RedisError> {
        for node in &self.named {
            let settings = limits.settings();
            let answer = match node.get_multiplexed_async_connection_with_config(&settings).await {
                Ok(mut node) => redis::cmd("PING").query_async::<()>(&mut node).await,
                Err(error) => Err(error),
            };
            if let Err(error) = answer
                && (error.kind() == ErrorKind::AuthenticationFailed
                    || error.code() == Some("NOAUTH"))
            {
                return Some(error);
            }
        }
        None
    }

    /// Returns a client of the first named node that answers.
    pub(super) async fn node(&self, limits: TimeLimits) -> RedisResult<Client> {
        let mut error = closed("no node is named");
        for node in &self.named {
            let settings = limits.settings();
            match node.get_multiplexed_async_connection_with_config(&settings).await {
                Ok(_) => return Ok(node.clone()),
                Err(other) => error = other,
            }
        }
        Err(error)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster {}", self.hosts)
    }
}
