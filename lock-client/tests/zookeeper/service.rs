//! The clients of a private ZooKeeper.

use lock_client::zookeeper::ZooKeeper;

pub(crate) use crate::quorum::service::*;

/// Makes a client, with patience for a busy machine.
pub(crate) fn client(url: &str) -> ZooKeeper {
    <testbed::ZooKeeper as Service>::client(url)
}
