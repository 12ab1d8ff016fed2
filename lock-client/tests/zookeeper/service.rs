//! The clients of a private ZooKeeper.

use lock_client::zookeeper::ZooKeeper;

pub(crate) use crate::quorum::service::*;

/// Makes a client, with patience for a busy machine.
pub(crate) fn client(url: &str) -> ZooKeeper {
    <testbed::ZooKeeper as Service>::client(url)
}

/// Returns the path of the only node of a holder.
pub(crate) async fn own_node(zookeeper: &testbed::ZooKeeper) -> String {
    let nodes = zookeeper.ephemeral_nodes().await.unwrap();
    let mut nodes = nodes.lines().filter(|line| line.contains("/holder-"));
    let (node, next) = (nodes.next().unwrap().trim().to_owned(), nodes.next());
    assert_eq!(next, None);
    node
}
