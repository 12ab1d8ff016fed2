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

/// Returns the session that the first node of a lock belongs to; `None` if nobody holds it.
pub(crate) async fn session_of(zookeeper: &testbed::ZooKeeper, lock: &str) -> Option<String> {
    let (nodes, queue) =
        (zookeeper.ephemeral_nodes().await.unwrap(), format!("/fenced/queues/{lock}/"));
    let mut session = None;
    for line in nodes.lines().map(str::trim) {
        if line.starts_with("0x") {
            session = Some(line.trim_end_matches(':').to_owned());
        } else if line.starts_with(&queue) {
            return session;
        }
    }
    None
}
