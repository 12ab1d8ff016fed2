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
