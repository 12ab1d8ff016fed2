//! The lock services that are checked.

mod etcd;
mod redis;
mod sql;
mod zookeeper;

pub(super) use self::{
    etcd::EtcdMembers,
    redis::{Cluster, Nodes, OneRedis, Primary},
    sql::{File, Maria, Tables},
    zookeeper::ZooKeeperMembers,
};
