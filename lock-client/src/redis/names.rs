//! The names of the locks that a Redis holds.

use fence::ResourceName;
use redis::{Cmd, RedisResult};
#[cfg(feature = "cluster")]
use redis::{
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};

use super::{keys::Keys, server::Server, settings::TimeLimits, transport::Transport};

/// How many keys one SCAN looks at. Redis does nothing else meanwhile.
const PAGE: usize = 1_000;

/// The names of the locks that a Redis holds, a page at a time. A name may come twice, and one that
/// was acquired or released meanwhile may be missing.
#[derive(Debug)]
pub struct HeldNames {
    pattern: String,
    shards: Vec<Shard>,
    /// Where the last of the shards goes on. Those before it are not read yet.
    cursor: u64,
}

/// A server with a part of the keys.
enum Shard {
    Node(redis::aio::MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Primary {
        cluster: ClusterConnection,
        host: String,
        port: u16,
    },
}

impl HeldNames {
    /// Connects to a Redis, of a Cluster to all primaries.
    pub(super) async fn connect(
        server: &Server,
        limits: TimeLimits,
        prefix: &str,
    ) -> RedisResult<Self> {
        let shards = match server.connect(limits).await? {
            Transport::Node(connection) => vec![Shard::Node(connection)],
            #[cfg(feature = "cluster")]
            Transport::Cluster(cluster) => primaries(cluster).await?,
        };
        Ok(Self { pattern: Keys::held_pattern(prefix), shards, cursor: 0 })
    }

    /// Returns the next page, which may be empty; `None` at the end.
    ///
    /// # Errors
    /// If Redis does not answer, or refuses.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the next call returns the same page.
    pub async fn next_page(&mut self) -> RedisResult<Option<Vec<ResourceName>>> {
        let Some(shard) = self.shards.last_mut() else { return Ok(None) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(self.cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(PAGE);
        let (cursor, keys): (u64, Vec<Vec<u8>>) = shard.query(&scan).await?;
        self.cursor = cursor;
        if cursor == 0 {
            self.shards.pop();
        }
        let name = |key: &Vec<u8>| Keys::name_of_lock(std::str::from_utf8(key).ok()?);
        Ok(Some(keys.iter().filter_map(name).collect()))
    }
}

#[cfg(feature = "cluster")]
async fn primaries(mut cluster: ClusterConnection) -> RedisResult<Vec<Shard>> {
    /// The first and the last slot, and the primary; then its replicas.
    type Slots = Vec<Vec<redis::Value>>;
    let mut slots = redis::cmd("CLUSTER");
    let slots: Slots = slots.arg("SLOTS").query_async(&mut cluster).await?;
    let mut addresses = Vec::new();
    for range in slots {
        let primary = range.into_iter().nth(2).unwrap_or(redis::Value::Nil);
        let mut primary: Vec<redis::Value> = redis::from_redis_value(primary)?;
        primary.truncate(2);
        let address: (String, u16) = redis::from_redis_value(redis::Value::Array(primary))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let shard = |(host, port)| Shard::Primary { cluster: cluster.clone(), host, port };
    Ok(addresses.into_iter().map(shard).collect())
}

impl Shard {
    async fn query<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Node(connection) => command.query_async(connection).await,
            #[cfg(feature = "cluster")]
            Self::Primary { cluster, host, port } => {
                let address = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
                let answer =
                    cluster.route_command(command.clone(), RoutingInfo::SingleNode(address));
                Ok(redis::from_redis_value(answer.await?)?)
            }
        }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shard")
    }
}
