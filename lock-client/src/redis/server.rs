//! A Redis that a URL names: one node, a primary that Sentinels know, or a Cluster.

mod certificates;
mod cluster;
mod node;
mod protocol;
mod sentinel;
mod url;

use std::fmt;

use redis::{Client, ConnectionAddr, RedisResult, aio::PubSub};

pub(super) use self::certificates::UsedCertificates;
use self::cluster::Cluster;
use self::node::Node;
use self::sentinel::Sentinels;
pub use self::url::schemes;
use self::url::{RedisUrl, UrlKind, unusable};
use super::{
    settings::{TimeLimits, within},
    transport::Transport,
};
use crate::service_url::InvalidUrl;

/// A Redis that a URL names: one node, a primary that Sentinels know, or a Cluster.
///
/// It displays as its address, without a password.
pub struct Server(Kind);

enum Kind {
    Node(Box<Node>),
    Primary(Box<Sentinels>),
    Cluster(Box<Cluster>),
}

impl Server {
    /// Parses a URL of [`Redis::open`](super::Redis::open).
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used, or needs a feature that was not compiled.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        Self::parse(url).map_err(|invalid| unusable(url, invalid))
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let parsed = RedisUrl::parse(url)?;
        Ok(Self(match parsed.kind {
            UrlKind::Node | UrlKind::Socket => Kind::Node(Box::new(Node::parse(&parsed)?)),
            UrlKind::Sentinel => Kind::Primary(Box::new(Sentinels::parse(&parsed)?)),
            UrlKind::Cluster => Kind::Cluster(Box::new(Cluster::parse(&parsed)?)),
        }))
    }

    /// The URL of a single node, without a user and a password; otherwise what it displays as.
    pub(super) fn url(&self) -> String {
        match &self.0 {
            Kind::Node(node) => node.url(),
            _ => self.to_string(),
        }
    }

    /// Returns the single node at another address, with the same user, password, database and
    /// certificates. `None` if the address is invalid.
    pub(crate) fn with_address(&self, address: &str) -> Option<Self> {
        match &self.0 {
            Kind::Node(node) => Some(Self(Kind::Node(Box::new(node.with_address(address)?)))),
            _ => None,
        }
    }

    /// Whether connections to a single node are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(&self.0, Kind::Node(node) if matches!(node.info.addr(), ConnectionAddr::TcpTls { .. }))
    }

    /// The database that the URL of a single node names; `None` for a Cluster, and behind Sentinels.
    pub(crate) fn database(&self) -> Option<i64> {
        match &self.0 {
            Kind::Node(node) => Some(node.info.redis_settings().db()),
            _ => None,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.0, Kind::Cluster(_))
    }

    /// Connects; through Sentinels, to the present primary.
    pub(super) async fn connect(&self, limits: TimeLimits) -> RedisResult<Transport> {
        match &self.0 {
            Kind::Node(node) => Ok(Transport::Node(node.connect(limits).await?)),
            Kind::Primary(sentinels) => Ok(Transport::Node(sentinels.connect(limits).await?)),
            Kind::Cluster(cluster) => cluster.connect(limits).await,
        }
    }

    pub(super) async fn connect_for_messages(&self, limits: TimeLimits) -> RedisResult<PubSub> {
        let node = self.find_node(limits).await?;
        within(limits.connecting(), node.get_async_pubsub()).await
    }

    /// Returns a client of a single node: the present primary, or the first of a Cluster's named
    /// nodes that answers.
    ///
    /// # Errors
    /// If no Sentinel knows a primary, or if none of the named nodes answers.
    pub async fn node(&self) -> RedisResult<Client> {
        self.find_node(TimeLimits::default()).await
    }

    async fn find_node(&self, limits: TimeLimits) -> RedisResult<Client> {
        match &self.0 {
            Kind::Node(node) => node.client(),
            Kind::Primary(sentinels) => sentinels.primary(limits).await,
            Kind::Cluster(cluster) => cluster.node(limits).await,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Node(node) => node.fmt(f),
            Kind::Primary(sentinels) => sentinels.fmt(f),
            Kind::Cluster(cluster) => cluster.fmt(f),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (url, address) in [
            ("redis://localhost", "localhost:6379"),
            ("redis://user:p%40ss@localhost:6380/3", "localhost:6380"),
            ("rediss://localhost", "localhost:6379"),
            ("redis+unix:///tmp/redis.sock", "/tmp/redis.sock"),
            ("redis+sentinel://localhost/locks", "primary locks of the Sentinels localhost:26379"),
            (
                "redis+sentinel://u:p@s1:1,s2,[::1]/lo%63ks/3",
                "primary locks of the Sentinels s1:1,s2:26379,[::1]:26379",
            ),
            ("rediss+sentinel://s1,s2/locks", "primary locks of the Sentinels s1:26379,s2:26379"),
            ("redis+cluster://n1", "Cluster n1:6379"),
            ("rediss+cluster://u:p@n1:7000,[::1]:7001", "Cluster n1:7000,[::1]:7001"),
        ] {
            let server = Server::open(url).unwrap();
            assert_eq!(server.to_string(), address, "without a password");
        }
    }
}
