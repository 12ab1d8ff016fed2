//! Private Redis servers: one alone, a replica, one with Sentinels, a Cluster, the nodes of
//! Redlock.
//!
//! Start with `redis/server.rs`; `redis/launch.rs` has the command line of a server.

mod cluster;
mod launch;
mod listener;
mod nodes;
mod replica;
mod sentinels;
mod server;

pub use self::{
    cluster::RedisCluster,
    nodes::{NodeKind, RedlockNodes},
    replica::Replica,
    sentinels::Sentinels,
    server::Redis,
};

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult, aio::MultiplexedConnection,
};

/// How long a connection or an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects to a Redis, and waits for its answers longer than the 500 ms that the crate waits by
/// default.
///
/// # Errors
/// If the URL is wrong, or nothing answers at it.
pub async fn connect(to: impl IntoConnectionInfo) -> RedisResult<MultiplexedConnection> {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    Client::open(to)?.get_multiplexed_async_connection_with_config(&patient).await
}
