//! The testbed does what it says: its servers keep, lose, reject and promote, its disks lose what was
//! not synced, and its proxy strikes the messages that its rules name, and no others.

#[cfg(target_os = "linux")]
mod disk;
mod etcd;
#[cfg(target_os = "linux")]
mod object_storage;
mod patroni;
mod postgres;
mod proxy;
mod servers;
mod zookeeper;

use testbed::Redis;

/// Returns the value at a key, without the proxy.
async fn value(redis: &Redis, key: &str) -> Option<String> {
    redis.command(&["GET", key]).await.unwrap()
}
