//! kazoo's lock, whose token is the czxid of its node.

use testbed::ZooKeeper;

use super::{page::commands, reader::Reader};

#[tokio::test]
async fn token_of_kazoo_outlives_its_lock_and_goes_back_when_all_data_is_lost() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let (mut reader, lock) = (Reader::start().await, commands("ZooKeeper", 0));
    reader.at(2181, zookeeper.address(0));
    let [_, second] = reader.stale_token_is_rejected(lock).await;

    // Kazoo's number in the node's name starts at 0 again; the czxid doesn't.
    zookeeper.cli(&["deleteall", "/locks"]).await.unwrap();
    let third = reader.pay(lock).await.unwrap();
    assert!(second.token < third.token, "{second:?} {third:?}");
    assert!(third.holder.ends_with("__lock__0000000000"), "{third:?}");

    let empty = ZooKeeper::start().await.unwrap();
    reader.at(2181, empty.address(0));
    assert_eq!(reader.pay(lock).await.unwrap_err(), "stale-token");
}
