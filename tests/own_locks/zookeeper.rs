//! kazoo's lock, whose token is the czxid of its node.

use testbed::ZooKeeper;

use super::{page::commands, reader::Reader};

#[tokio::test]
async fn token_of_kazoo_outlives_its_lock_and_goes_back_after_a_restore() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    let (mut reader, lock) = (Reader::start().await, commands("ZooKeeper", 0));
    reader.replace_port(2181, zookeeper.address(0));
    zookeeper.back_up().unwrap();
    zookeeper.restart().await.unwrap();
    let [_, second] = reader.stale_token_is_rejected(lock).await;

    // Kazoo's number in the node's name starts at 0 again; the czxid doesn't.
    zookeeper.cli(&["deleteall", "/locks"]).await.unwrap();
    let third = reader.pay(lock).await.unwrap();
    assert!(second.token < third.token, "{second:?} {third:?}");
    assert!(third.holder.ends_with("__lock__0000000000"), "{third:?}");

    zookeeper.restore().await.unwrap();
    assert_eq!(reader.pay(lock).await.unwrap_err(), "stale-token");
}

#[tokio::test]
async fn token_of_kazoo_counts_the_elections_in_its_upper_half() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let (mut reader, lock) = (Reader::start().await, commands("ZooKeeper", 0));
    reader.replace_port(2181, zookeeper.address(0));
    let before = reader.pay(lock).await.unwrap();
    zookeeper.restart().await.unwrap();
    let after = reader.pay(lock).await.unwrap();
    assert_eq!(reader.pay_late(&before).await.unwrap_err(), "stale-token");
    assert!(before.token >> 32 > 0 && before.token >> 32 < after.token >> 32);
}
