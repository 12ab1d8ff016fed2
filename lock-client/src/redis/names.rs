//! The names of the locks that a Redis holds.

use std::sync::Arc;

use fence::ResourceName;
use futures_util::stream::try_unfold;
use redis::{Cmd, RedisResult};
use redis::{
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};

use super::{
    failure::failed, keys::Keys, server::Server, settings::TimeLimits, transport::Transport,
};
use crate::backend::HeldNames;

/// How many keys one SCAN looks at. Redis does nothing else meanwhile.
const PAGE: usize = 1_000;

/// Connects, and reads the names that have this prefix, of a Cluster from all primaries.
pub(super) fn held(server: Arc<Server>, limits: TimeLimits, prefix: &str) -> HeldNames {
    let pattern = Keys::held_pattern(prefix);
    Box::pin(try_unfold(None, move |scan| {
        let (server, pattern) = (server.clone(), pattern.clone());
        async move {
            let page = async {
                let mut scan = match scan {
                    Some(scan) => scan,
                    None => Scan::connect(&server, limits, pattern).await?,
                };
                Ok(scan.next_page().await?.map(|page| (page, Some(scan))))
            };
            page.await.map_err(|error| failed(&server, &error))
        }
    }))
}

struct Scan {
    pattern: String,
    shards: Vec<Shard>,
    /// Where the last of the shards goes on. Those before it are not read yet.
    cursor: u64,
}

enum Shard {
    Node(redis::aio::MultiplexedConnection),
    Primary { cluster: ClusterConnection, host: String, port: u16 },
}

impl Scan {
    async fn connect(server: &Server, limits: TimeLimits, pattern: String) -> RedisResult<Self> {
        let shards = match server.connect(limits).await? {
            Transport::Node(connection) => vec![Shard::Node(connection)],
            Transport::Cluster(cluster, _) => primaries(cluster).await?,
        };
        Ok(Self { pattern, shards, cursor: 0 })
    }

    /// Returns the next page, which may be empty; `None` at the end.
    async fn next_page(&mut self) -> RedisResult<Option<Vec<ResourceName>>> {
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
            Self::Primary { cluster, host, port } => {
                let address = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port: *port };
                let answer =
                    cluster.route_command(command.clone(), RoutingInfo::SingleNode(address));
                Ok(redis::from_redis_value(answer.await?)?)
            }
        }
    }
}
