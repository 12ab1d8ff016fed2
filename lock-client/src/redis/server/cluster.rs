//! A Redis Cluster.

use std::{fmt, time::Duration};

use redis::{Client, RedisResult, cluster::ClusterClient, cluster_async::ClusterConnection};

use super::{
    super::settings::{CONNECTION_TIMEOUT, RESPONSE_TIMEOUT, closed, tcp_settings, within},
    hosts::Hosts,
    url::{InvalidRedisUrl, RedisUrl},
};

/// The time to ask the nodes for the layout of the Cluster, and to connect to them.
const CONNECTING_TIMEOUT: Duration = Duration::from_secs(3);
const REDIS_PORT: u16 = 6379;

/// A Redis Cluster.
pub(super) struct Cluster {
    client: ClusterClient,
    /// The nodes that the URL names. Each receives what is published on any node.
    named: Vec<Client>,
    hosts: String,
}

impl Cluster {
    pub(super) fn parse(url: &RedisUrl<'_>) -> Result<Self, InvalidRedisUrl> {
        let hosts = Hosts::parse(url.rest)?;
        if !hosts.path.is_empty() {
            return Err(InvalidRedisUrl::new("a Cluster has no databases to choose from"));
        }
        let infos = hosts.connection_infos(url.node_scheme, hosts.user, REDIS_PORT)?;
        let client = ClusterClient::builder(infos.clone())
            .connection_timeout(CONNECTION_TIMEOUT)
            .response_timeout(RESPONSE_TIMEOUT)
            .tcp_settings(tcp_settings())
            .build()?;
        let named = infos.into_iter().map(Client::open).collect::<RedisResult<_>>()?;
        Ok(Self { client, named, hosts: hosts.names() })
    }

    pub(super) async fn connect(&self) -> RedisResult<ClusterConnection> {
        within(CONNECTING_TIMEOUT, self.client.get_async_connection()).await
    }

    /// Returns a client of the first named node that answers.
    pub(super) async fn node(&self) -> RedisResult<Client> {
        let mut error = closed("no node is named");
        for node in &self.named {
            match within(CONNECTION_TIMEOUT, node.get_multiplexed_async_connection()).await {
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
