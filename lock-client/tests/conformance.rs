//! Each lock service passes the suite of the library, and a backend that breaks a promise fails it.

mod broken;
mod services;

use futures_util::{StreamExt, stream};
use lock_client::conformance::check;

use self::{
    broken::{Broken, Fault},
    services::{
        Cluster, EtcdMembers, File, Maria, Nodes, OneRedis, Primary, Tables, ZooKeeperMembers,
    },
};

#[tokio::test]
async fn redis_keeps_all_promises() {
    check(&mut OneRedis::start().await).await.unwrap();
}

#[tokio::test]
async fn redis_behind_sentinels_keeps_all_promises() {
    check(&mut Primary::start().await).await.unwrap();
}

#[tokio::test]
async fn redis_cluster_keeps_all_promises() {
    check(&mut Cluster::start().await).await.unwrap();
}

#[tokio::test]
async fn redlock_keeps_all_promises() {
    check(&mut Nodes::start().await).await.unwrap();
}

#[tokio::test]
async fn etcd_keeps_all_promises() {
    check(&mut EtcdMembers::start_one().await).await.unwrap();
}

#[tokio::test]
async fn etcd_of_three_members_keeps_all_promises() {
    check(&mut EtcdMembers::start_three().await).await.unwrap();
}

#[tokio::test]
async fn zookeeper_keeps_all_promises() {
    check(&mut ZooKeeperMembers::start_one().await).await.unwrap();
}

#[tokio::test]
async fn zookeeper_of_three_members_keeps_all_promises() {
    check(&mut ZooKeeperMembers::start_three().await).await.unwrap();
}

#[tokio::test]
async fn postgres_keeps_all_promises() {
    check(&mut Tables::start().await).await.unwrap();
}

#[tokio::test]
async fn postgres_behind_pgbouncer_keeps_all_promises() {
    check(&mut Tables::start_behind_pgbouncer().await).await.unwrap();
}

#[tokio::test]
async fn mariadb_keeps_all_promises() {
    check(&mut Maria::start().await).await.unwrap();
}

#[tokio::test]
async fn sqlite_keeps_all_promises() {
    check(&mut File::create().await).await.unwrap();
}

/// The negative control: each fault is found, and named by the promise that it breaks.
#[tokio::test]
async fn backend_that_breaks_a_promise_fails() {
    let faults = [
        (Fault::GrantsTwice, "one holder at a time"),
        (Fault::ChecksThenActs, "one holder at a time"),
        (Fault::ForgetsTokens, "each token is higher than the last"),
        (Fault::LowercasesNames, "names differ byte for byte"),
        (Fault::CountsFromTheReply, "the deadline counts from before the request"),
        (Fault::HalvesTtl, "a lock is granted for its ttl"),
        (Fault::DoublesTtl, "a lock is granted for its ttl"),
        (Fault::ForgetsHolders, "a repeated try returns the same grant, and sets the full ttl"),
        (Fault::IgnoresGrants, "an ownership ends with its release"),
        (Fault::RenewalSetsShortTtl, "a renewal sets the full ttl, and returns the token"),
        (Fault::RenewsNothing, "a renewal sets the full ttl, and returns the token"),
        (Fault::RenewsExpiredLeases, "an expired lease is not renewed"),
        (
            Fault::ReissuesTheSame,
            "a reissue returns a higher token, and later grants stay above it",
        ),
        (Fault::ReissueSetsShortTtl, "a reissue keeps the ttl"),
        (Fault::ReleasesOthers, "only the holder releases"),
        (Fault::ReleasesAgain, "only the holder releases"),
        (Fault::LosesNotifications, "a release notifies the waiter"),
        (Fault::NotifiesOne, "a release notifies all waiters that are in no order"),
        (Fault::SubscribesOnce, "a subscription survives a restart of the service"),
        (Fault::IgnoresOrder, "the queue is fair"),
        (Fault::KeepsWaiters, "a waiter that gives up leaves the queue"),
        (Fault::WaitsForTheDead, "a waiter that is gone holds up nobody"),
        (Fault::OvertakesTries, "a dropped request leaves nothing behind"),
        (Fault::TakesSilenceForNo, "the outcome of a request to a paused service is unknown"),
        (Fault::NeverGivesUp, "a stopped service is unavailable, until it is back"),
    ];
    let checks = faults.map(async |(fault, promise)| {
        let checked = check(&mut Broken::<true>::start(fault).await).await;
        let violation = checked.expect_err(&format!("{fault:?} is not found"));
        assert_eq!(violation.promise, promise, "{fault:?}: {violation}");
    });
    // All at once would be slow enough to break promises of time.
    stream::iter(checks).buffer_unordered(8).collect::<()>().await;
}

#[tokio::test]
async fn backend_that_takes_any_order_fails() {
    let checked = check(&mut Broken::<false>::start(Fault::IgnoresOrder).await).await;
    let violation = checked.expect_err("it grants a lock in an order that it does not have");
    assert_eq!(violation.promise, "a fair order that is missing is invalid", "{violation}");
}

#[tokio::test]
async fn service_that_cannot_be_stopped_is_no_broken_promise() {
    let checked = check(&mut Broken::<true>::start(Fault::CannotBeStopped).await).await;
    let found = checked.expect_err("it can't be stopped").found;
    assert!(
        found.contains("no promise was broken") && found.contains("no such process"),
        "{found}"
    );
}
