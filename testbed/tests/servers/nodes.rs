//! The nodes of Redlock don't know each other.

use testbed::{NodeKind, Redis, RedlockNodes};

use crate::value;

#[tokio::test]
async fn nodes_are_independent_and_each_is_of_its_own_kind() {
    let kinds = [NodeKind::FORGETFUL, NodeKind::DURABLE, NodeKind::With(&["--maxclients", "77"])];
    let mut nodes = RedlockNodes::start(&kinds).await.unwrap();
    for (number, node) in nodes.nodes_mut().iter_mut().enumerate() {
        assert_eq!(node.info("role").await.unwrap(), "master");
        assert_eq!(value(node, "key").await, None, "the nodes share no data");
        node.set("key", &number.to_string()).await.unwrap();
        node.restart().await.unwrap();
    }
    let [forgetful, durable, limited] = nodes.nodes() else { panic!("there are three") };
    assert_eq!(value(forgetful, "key").await, None);
    assert_eq!(value(durable, "key").await.as_deref(), Some("1"));
    assert_eq!(limited.info("maxclients").await.unwrap(), "77");
    let urls: Vec<_> = nodes.nodes().iter().map(Redis::url).collect();
    assert_eq!(nodes.urls(), urls);
}
