//! `etcdctl lock`, whose token is the revision of the store.

use testbed::Etcd;

use super::{page::commands, reader::Reader};

/// What guards the page's command against the variables of its caller.
const GUARD: &str = "env -u ETCD_LOCK_REV -u ETCD_LOCK_KEY";

async fn reader(etcd: &Etcd) -> Reader {
    let mut reader = Reader::start().await;
    reader.replace_port(2379, etcd.address(0));
    reader
}

#[tokio::test]
async fn token_of_etcdctl_outlives_its_key_and_goes_back_after_a_restore() {
    let mut etcd = Etcd::start().await.unwrap();
    let (reader, lock) = (reader(&etcd).await, commands("etcd", 0));
    let snapshot = etcd.save_snapshot().await.unwrap();
    let [_, second] = reader.stale_token_is_rejected(lock).await;

    let delete = "etcdctl --endpoints 127.0.0.1:2379 del --prefix invoice-7";
    reader.succeed(delete).await;
    let third = reader.pay(lock).await.unwrap();
    assert!(second.token < third.token);

    etcd.restore(&snapshot).await.unwrap();
    assert_eq!(reader.pay(lock).await.unwrap_err(), "stale-token");
}

#[tokio::test]
async fn token_of_etcdctl_is_not_that_of_its_caller() {
    let etcd = Etcd::start().await.unwrap();
    let (mut reader, lock) = (reader(&etcd).await, commands("etcd", 0));
    reader.set("ETCD_LOCK_REV", "999");
    assert_ne!(reader.pay(lock).await.unwrap().token, 999);
    // The negative control.
    assert!(lock.contains(GUARD));
    assert_eq!(reader.pay(&lock.replace(GUARD, "env")).await.unwrap().token, 999);
}
