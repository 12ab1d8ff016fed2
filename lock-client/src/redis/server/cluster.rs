//! A Redis Cluster.

use std::fmt;

use redis::{
    Client, ConnectionInfo, RedisResult, cluster::ClusterClient, cluster_async::ClusterConnection,
};

use super::{
    super::settings::{TimeLimits, closed, tcp_settings, within},
    hosts::Hosts,
    url::{InvalidRedisUrl, RedisUrl},
};

const REDIS_PORT: u16 = 6379;

/// A Redis Cluster.
pub(super) struct Cluster {
    /// The nodes that the URL names. Each receives what is published on any node.
    named: Vec<ConnectionInfo>,
    hosts: String,
}

impl Cluster {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidRedisUrl> {
        let hosts = Hosts::parse(url.rest)?;
        if !hosts.path.is_empty() {
            return Err(InvalidRedisUrl::new("a Cluster has no databases to choose from"));
        }
        let named = hosts.connection_infos(url.node_scheme, hosts.user, REDIS_PORT)?;
        Ok(Self { named, hosts: hosts.names() })
    }

    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<ClusterConnection> {
        let client = ClusterClient::builder(self.named.clone())
            .connection_timeout(limits.connecting())
            .response_timeout(limits.answer)
            .tcp_settings(tcp_settings())
            .build()?;
        within(limits.finding(), client.get_async_connection()).await
    }

    /// Returns a client of the first named node that answers.
    pub(super) async fn node(&self, limits: TimeLimits) -> RedisResult<Client> {
        let mut error = closed("no node is named");
        for node in &self.named {
            let node = Client::open(node.clone())?;
            let settings = limits.settings();
            match node.get_multiplexed_async_connection_with_config(&settings).await {
                Ok(_) => return Ok(node),
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
