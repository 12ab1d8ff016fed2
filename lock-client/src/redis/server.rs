//! Where Redis is: one node, a primary that Sentinels know, or a Cluster.

use std::time::Duration;

use redis::{
    Client, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, TlsMode,
    aio::PubSub,
    cluster::ClusterClient,
    io::tcp::TcpSettings,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use tokio::{sync::Mutex, time::timeout};

use super::line::{Link, RESPONSE_TIMEOUT, settings};

pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Through Sentinel: to ask some of them, the primary, and to connect to it.
const FINDING_TIMEOUT: Duration = Duration::from_secs(3);
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(2);
const SENTINEL_PORT: u16 = 26379;
const REDIS_PORT: u16 = 6379;

/// Where Redis is.
pub enum Server {
    Node(Box<Client>),
    Sentinel(Box<Mutex<SentinelClient>>),
    Cluster {
        client: Box<ClusterClient>,
        /// The nodes that the URL names. Each hears of what is published on any.
        named: Vec<Client>,
    },
}

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable Redis URL: {0}")]
pub struct InvalidUrl(#[source] RedisError);

impl From<RedisError> for InvalidUrl {
    fn from(error: RedisError) -> Self {
        Self(error)
    }
}

impl Server {
    /// Reads a URL, whose forms are told at [`Redis::open`](super::Redis::open).
    pub fn at(url: &str) -> Result<Self, InvalidUrl> {
        for (scheme, node_scheme) in [("redis", "redis"), ("rediss", "rediss")] {
            if let Some(nodes) = url.strip_prefix(&format!("{scheme}+sentinel://")) {
                return Self::behind_sentinels(node_scheme, nodes);
            }
            if let Some(nodes) = url.strip_prefix(&format!("{scheme}+cluster://")) {
                return Self::cluster(node_scheme, nodes);
            }
        }
        let info = url.into_connection_info()?.set_tcp_settings(tcp_settings());
        Ok(Self::Node(Box::new(Client::open(info)?)))
    }

    fn behind_sentinels(scheme: &str, nodes: &str) -> Result<Self, InvalidUrl> {
        let Nodes { user, hosts, path } = Nodes::parse(nodes)?;
        let (primary, database) = path.split_once('/').unwrap_or((path, ""));
        if primary.is_empty() {
            return Err(invalid("after the Sentinels comes /NAME, the primary's name"));
        }
        // Of this URL, only what is not about the host is used.
        let redis = format!("{scheme}://{user}primary/{database}").into_connection_info()?;
        let mut node = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(redis.redis_settings().clone())
            .set_tcp_settings(tcp_settings());
        if scheme == "rediss" {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let sentinels = connection_infos(scheme, "", &hosts, SENTINEL_PORT)?;
        let master = SentinelServerType::Master;
        let client = SentinelClient::build(sentinels, primary, Some(node), master)?;
        Ok(Self::Sentinel(Box::new(Mutex::new(client))))
    }

    fn cluster(scheme: &str, nodes: &str) -> Result<Self, InvalidUrl> {
        let Nodes { user, hosts, path } = Nodes::parse(nodes)?;
        if !path.is_empty() {
            return Err(invalid("a Cluster has no databases to choose from"));
        }
        let infos = connection_infos(scheme, user, &hosts, REDIS_PORT)?;
        let client = ClusterClient::builder(infos.clone())
            .connection_timeout(CONNECTION_TIMEOUT)
            .response_timeout(RESPONSE_TIMEOUT)
            .tcp_settings(tcp_settings())
            .build()?;
        let named = infos.into_iter().map(Client::open).collect::<RedisResult<_>>()?;
        Ok(Self::Cluster { client: Box::new(client), named })
    }

    /// The address, without a password, if it is that of one node.
    pub(crate) fn address(&self) -> Option<String> {
        match self {
            Self::Node(client) => Some(client.get_connection_info().addr().to_string()),
            Self::Sentinel(_) | Self::Cluster { .. } => None,
        }
    }

    /// Connects, to the present primary.
    pub(crate) async fn connect(&self) -> RedisResult<Link> {
        match self {
            Self::Node(client) => {
                let settings = settings();
                let connecting = client.get_multiplexed_async_connection_with_config(&settings);
                Ok(Link::Node(connecting.await?))
            }
            Self::Sentinel(client) => {
                let connecting = async {
                    client.lock().await.get_async_connection_with_config(&settings()).await
                };
                Ok(Link::Node(in_time(FINDING_TIMEOUT, connecting).await?))
            }
            Self::Cluster { client, .. } => {
                Ok(Link::Cluster(in_time(FINDING_TIMEOUT, client.get_async_connection()).await?))
            }
        }
    }

    /// Connects, to hear of what is published.
    pub(super) async fn listen(&self) -> RedisResult<PubSub> {
        let node = self.node().await?;
        in_time(CONNECTION_TIMEOUT, node.get_async_pubsub()).await
    }

    /// A single node: the present primary, or one of those named that answers.
    pub async fn node(&self) -> RedisResult<Client> {
        match self {
            Self::Node(client) => Ok(Client::clone(client)),
            Self::Sentinel(client) => {
                let finding = async { client.lock().await.async_get_client().await };
                in_time(FINDING_TIMEOUT, finding).await
            }
            Self::Cluster { named, .. } => {
                let mut error = closed("no node is named");
                for node in named {
                    match in_time(CONNECTION_TIMEOUT, node.get_multiplexed_async_connection()).await
                    {
                        Ok(_) => return Ok(node.clone()),
                        Err(other) => error = other,
                    }
                }
                Err(error)
            }
        }
    }
}

/// Tells whether a URL has a password in it: one that can't be read may have.

pub fn has_password(url: &str) -> bool {
    let several = ["redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"];
    if let Some((scheme, nodes)) = url.split_once("://")
        && several.contains(&scheme)
    {
        return Nodes::parse(nodes).map_or(true, |nodes| nodes.user.contains(':'));
    }
    url.into_connection_info().map_or(true, |info| info.redis_settings().password().is_some())
}

/// `[USER:PASSWORD@]HOST[:PORT],…[/PATH]`
struct Nodes<'a> {
    /// With its `@`.
    user: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl<'a> Nodes<'a> {
    fn parse(nodes: &'a str) -> Result<Self, InvalidUrl> {
        let (authority, path) = nodes.split_once('/').unwrap_or((nodes, ""));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.contains(&"") {
            return Err(invalid("a host is missing"));
        }
        Ok(Self { user, hosts, path })
    }
}

fn connection_infos(
    scheme: &str,
    user: &str,
    hosts: &[&str],
    default_port: u16,
) -> RedisResult<Vec<ConnectionInfo>> {
    let info = |host: &&str| {
        // The colons of an IPv6 address are inside of brackets.
        let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let port = if has_port { String::new() } else { format!(":{default_port}") };
        let info = format!("{scheme}://{user}{host}{port}").into_connection_info()?;
        Ok(info.set_tcp_settings(tcp_settings()))
    };
    hosts.iter().map(info).collect()
}

/// Small requests leave at once, and a connection whose other end has gone without a word is given
/// up when it has acknowledged nothing for a while: only then is a new one made.
fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_TIMEOUT);
    settings
}

async fn in_time<T>(
    limit: Duration,
    connecting: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    timeout(limit, connecting).await.unwrap_or_else(|_| Err(closed("it took too long to connect")))
}

fn closed(reason: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, reason))
}

fn invalid(reason: &'static str) -> InvalidUrl {
    InvalidUrl(RedisError::from((ErrorKind::InvalidClientConfig, reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Server::at(url).err().expect("it is refused").to_string()
    }

    #[test]
    fn urls_of_every_kind_are_read() {
        for url in [
            "redis://localhost",
            "redis://user:p%40ss@localhost:6380/3",
            "rediss://localhost",
            "redis+unix:///tmp/redis.sock",
        ] {
            assert!(matches!(Server::at(url), Ok(Server::Node(_))), "{url}");
        }
        for url in [
            "redis+sentinel://localhost/locks",
            "redis+sentinel://u:p@s1:26379,s2,[::1]/locks/3",
            "rediss+sentinel://s1,s2/locks",
        ] {
            assert!(matches!(Server::at(url), Ok(Server::Sentinel(_))), "{url}");
        }
        for url in ["redis+cluster://n1", "rediss+cluster://u:p@n1:7000,[::1]:7001"] {
            assert!(matches!(Server::at(url), Ok(Server::Cluster { .. })), "{url}");
        }
    }

    #[test]
    fn passwords_are_found_wherever_they_stand() {
        for url in [
            "redis://:secret@localhost",
            "rediss://user:secret@localhost:6380/3",
            "redis+unix:///tmp/redis.sock?db=1&pass=secret",
            "redis+unix:///tmp/redis.sock?p%61ss=secret",
            "redis+sentinel://u:secret@s1,s2/locks",
            "redis+cluster://:secret@n1:7000,n2",
            "what may be a secret",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "redis://localhost:6379/3",
            "redis+unix:///tmp/a:b@c/redis.sock?db=1",
            "redis+sentinel://s1:26379,s2/locks/3",
            "rediss+cluster://n1:7000,[::1]:7001",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_refused_with_the_reason() {
        assert!(refused("nonsense").contains("not a usable Redis URL"));
        assert!(refused("http://localhost").contains("not a usable Redis URL"));
        assert!(refused("redis+sentinel://s1,s2").contains("the primary's name"));
        assert!(refused("redis+cluster://").contains("a host is missing"));
        assert!(refused("redis+cluster://n1,,n2").contains("a host is missing"));
        assert!(refused("redis+cluster://n1/3").contains("no databases"));
    }
}
