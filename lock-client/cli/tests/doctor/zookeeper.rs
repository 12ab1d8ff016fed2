//! `doctor` on ZooKeeper: healthy ensembles, and ensembles with one problem each.

use testbed::{ZooKeeper, wait::until_async};
use tokio::join;

use super::{SOON, doctor, examine};
use crate::command::{assert_failed, lock_client};

#[tokio::test]
async fn ensemble_without_a_problem_is_ok_and_keeps_no_lock() {
    let (one, three) =
        (ZooKeeper::start().await.unwrap(), ZooKeeper::start_cluster().await.unwrap());
    join!(assert_ok(one, 1, "standalone"), assert_ok(three, 3, "leader"));
}

async fn assert_ok(zookeeper: ZooKeeper, members: usize, mode: &str) {
    let report = examine(&zookeeper.url()).await;
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
    report.assert_finds("quorum", "ok", &format!("{members} of {members} members answer"));
    report.assert_finds("version", "ok", "is ZooKeeper 3.");
    assert!(report.document.to_string().contains(&format!(", {mode}\"")), "{}", report.document);
    report.assert_finds("ttl", "ok", "a ttl from 1s to 10m");
    report.assert_finds("connections", "ok", "for each address: at most 60");
    report.assert_finds("locking", "ok", "acquired, renewed and released a lock");
    assert!(report.document["system"].as_str().unwrap().starts_with("ZooKeeper 3."));
    assert!(!zookeeper.ephemeral_nodes().await.unwrap().contains("doctor"));
    // The connection that reads has a session of 10 seconds. Longer ones are closed.
    let is_left = async || Ok(zookeeper.sessions(0).await?.is_empty());
    until_async(SOON, is_left).await.unwrap();
}

#[tokio::test]
async fn member_without_room_for_waiting_clients_is_a_warning() {
    let mut zookeeper = ZooKeeper::start().await.unwrap();
    zookeeper.limit_connections(20);
    zookeeper.restart().await.unwrap();
    let report = examine(&zookeeper.url()).await;
    report.assert_finds("connections", "warning", "for each address: at most 20");
    assert_eq!((report.code, report.complaints().as_slice()), (0, &["connections"][..]));
}

#[tokio::test]
async fn encrypted_member_is_examined_as_well() {
    let zookeeper = ZooKeeper::start_tls().await.unwrap();
    let url = format!("{}?tls-ca={}", zookeeper.url(), zookeeper.ca_file().display());
    let report = examine(&url).await;
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
}

#[tokio::test]
async fn member_that_is_down_or_not_named_is_a_warning() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    let one = format!("zookeeper://{}", zookeeper.address(0));
    let report = examine(&one).await;
    report.assert_finds("quorum", "warning", "1 of 1 members answer; there are 3");
    assert_eq!(report.code, 0);

    let down = zookeeper.address(2).to_string();
    zookeeper.process(2).kill().unwrap();
    zookeeper.leader_among(&[0, 1]).await.unwrap();
    let is_the_only_problem = async || {
        let report = examine(&zookeeper.url()).await;
        let found = report.worst("quorum")["found"].as_str().unwrap().contains(&down);
        Ok(found && report.code == 0 && report.complaints() == ["quorum"])
    };
    until_async(SOON, is_the_only_problem).await.unwrap();
}

#[tokio::test]
async fn ensemble_without_a_quorum_is_unavailable() {
    let mut zookeeper = ZooKeeper::start_cluster().await.unwrap();
    for number in [0, 1] {
        zookeeper.process(number).kill().unwrap();
    }
    let url = zookeeper.url();
    let without_quorum = async || {
        let output = doctor(&["--locks", &url]).await;
        Ok(String::from_utf8(output.stderr)?.contains("it has no quorum"))
    };
    until_async(SOON, without_quorum).await.unwrap();
    let output = doctor(&["--locks", &url]).await;
    assert_failed(&output, 69, &format!("{}: Connection refused", zookeeper.address(0)));
}

#[tokio::test]
async fn members_of_two_ensembles_are_unfit() {
    let (one, other) =
        (ZooKeeper::start().await.unwrap(), ZooKeeper::start_cluster().await.unwrap());
    let url = format!("{},{}", one.url(), other.address(0));
    let report = examine(&url).await;
    report.assert_finds("quorum", "unfit", "2 of 2 members answer");
    assert_eq!(report.code, 1);
}

#[tokio::test]
async fn nodes_of_another_user_and_a_missing_root_are_found() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let url = |user: &str| format!("zookeeper://{user}:p%40ss@{}", zookeeper.address(0));
    let report = examine(&url("locker")).await;
    report.assert_finds("login", "warning", "nothing shows whether the password is right");
    assert_eq!((report.code, report.complaints().as_slice()), (0, &["login"][..]));
    let report = examine(&url("locker")).await;
    report.assert_finds("login", "ok", "the nodes of the locks are this user's");
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
    let report = examine(&url("guest")).await;
    report.assert_finds("login", "unfit", "the node /fenced can't be used");
    report.assert_finds("locking", "unfit", "the nodes belong to another user");
    assert_eq!(report.code, 1);
    let report = examine(&format!("{}/apps", zookeeper.url())).await;
    report.assert_finds("locking", "unfit", "the node /apps does not exist");
    assert_eq!((report.code, report.complaints().as_slice()), (1, &["locking"][..]));
}

/// ZooKeeper takes every password. Only nodes with owners show a wrong one.
#[tokio::test]
async fn wrong_password_is_found_by_the_nodes_of_locks() {
    let zookeeper = ZooKeeper::start().await.unwrap();
    let url = |login: &str| format!("zookeeper://{login}{}", zookeeper.address(0));
    let (everybody, right, wrong) = (url(""), url("u:right@"), url("u:wrong@"));
    let acquire = async |name: &str, url: &str| {
        lock_client(&["acquire", name, "--ttl", "60s", "--no-wait", "--locks", url]).await
    };
    // A client without a user makes the nodes above all locks: they are everybody's.
    assert_eq!(acquire("open", &everybody).await.status.code(), Some(0));
    for url in [&right, &wrong] {
        let report = examine(url).await;
        report.assert_finds("login", "warning", "everybody may make locks here");
        assert_eq!((report.code, report.complaints().as_slice()), (0, &["login"][..]));
    }
    // A lock of the right user is no lock for the wrong password, nor for a client without a user.
    assert_eq!(acquire("deploy", &right).await.status.code(), Some(0));
    for url in [&wrong, &everybody] {
        assert_failed(&acquire("deploy", url).await, 69, "the nodes belong to another user");
        let report = examine(url).await;
        report.assert_finds("login", "unfit", "the node /fenced/queues/deploy can't be used");
        assert_eq!(report.code, 1);
    }
    // The control.
    assert_eq!(examine(&right).await.code, 0);
}
