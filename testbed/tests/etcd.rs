//! The private etcd keeps its data through a restart, and loses what a snapshot does not have.

use testbed::Etcd;

async fn value(etcd: &Etcd) -> String {
    etcd.etcdctl(&["get", "key", "--print-value-only"]).await.unwrap().trim().to_owned()
}

#[tokio::test]
async fn etcd_keeps_its_data_through_a_restart_and_not_through_a_restore() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let url = etcd.url();
    etcd.etcdctl(&["put", "key", "33"]).await.unwrap();
    let snapshot = etcd.save_snapshot().await.unwrap();
    etcd.etcdctl(&["put", "key", "34"]).await.unwrap();
    etcd.restart().await.unwrap();
    assert_eq!((value(&etcd).await.as_str(), etcd.url()), ("34", url.clone()));
    etcd.restore(&snapshot).await.unwrap();
    assert_eq!((value(&etcd).await.as_str(), etcd.url()), ("33", url));
}

#[tokio::test]
async fn another_member_becomes_the_leader_when_the_leader_is_killed() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let leader = etcd.leader_among(&[0, 1, 2]).await.unwrap();
    etcd.process(leader).kill().unwrap();
    let others: Vec<_> = (0..3).filter(|&number| number != leader).collect();
    assert!(others.contains(&etcd.leader_among(&others).await.unwrap()));
}
