//! The private ZooKeeper keeps its data through a restart, and loses what a backup does not have.

use testbed::ZooKeeper;

async fn value(zookeeper: &ZooKeeper) -> String {
    let printed = zookeeper.cli(&["get", "/key"]).await.unwrap();
    printed.lines().last().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn zookeeper_keeps_its_data_through_a_restart_and_not_through_a_restore() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    zookeeper.cli(&["create", "/key", "33"]).await.unwrap();
    zookeeper.back_up().unwrap();
    zookeeper.restart().await.unwrap();
    zookeeper.cli(&["set", "/key", "34"]).await.unwrap();
    zookeeper.restart().await.unwrap();
    assert_eq!(value(&zookeeper).await, "34");
    zookeeper.restore().await.unwrap();
    assert_eq!(value(&zookeeper).await, "33");
    zookeeper.restart_empty().await.unwrap();
    assert!(zookeeper.cli(&["get", "/key"]).await.is_err());
}

#[tokio::test]
async fn another_member_becomes_the_leader_when_the_leader_is_killed() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let leader = zookeeper.leader_among(&[0, 1, 2]).await.unwrap();
    zookeeper.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    assert!(others.contains(&zookeeper.leader_among(&others).await.unwrap()));
}
