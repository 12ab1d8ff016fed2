//! The lock services that are checked.

mod etcd;
mod redis;
mod sql;
mod zookeeper;

use std::time::Duration;

pub(super) use self::{
    etcd::EtcdMembers,
    redis::{Cluster, Nodes, OneRedis, Primary},
    sql::{File, Maria, Tables},
    zookeeper::ZooKeeperMembers,
};

/// How long a client waits for an answer. The machine is busy, and a server that has just started is
/// slow.
const PATIENCE: Duration = Duration::from_secs(2);
