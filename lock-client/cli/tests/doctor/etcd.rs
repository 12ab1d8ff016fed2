//! `doctor` on etcd: healthy clusters, and clusters with one problem each.

use testbed::{Etcd, wait::until_async};

use super::{Report, SOON, doctor, examine};
use crate::command::assert_failed;

/// The checks with a problem. The version depends on the etcd that is installed.
fn complaints(report: &Report) -> Vec<&str> {
    report.complaints().into_iter().filter(|check| *check != "version").collect()
}

#[tokio::test]
async fn cluster_without_a_problem_is_ok_and_is_left_unchanged() {
    for etcd in [Etcd::start().await.unwrap(), Etcd::start_cluster().await.unwrap()] {
        let report = examine(&etcd.url()).await;
        assert_eq!((report.code, complaints(&report).as_slice()), (0, &[][..]));
        report.assert_finds("locking", "ok", "acquired, renewed and released a lock");
        report.assert_finds("alarms", "ok", "alarms that are on: []");
        report.assert_finds("clock", "ok", "a lease of 10 s has ");
        let keys = etcd.etcdctl(&["get", "--prefix", "--keys-only", "fenced/"]).await.unwrap();
        assert_eq!(keys.trim(), "", "nothing is left behind");
    }
}

#[tokio::test]
async fn member_that_is_down_or_not_named_is_a_warning() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let one = format!("etcd://{}", etcd.address(0));
    let report = examine(&one).await;
    report.assert_finds("quorum", "warning", "1 of 1 members answer; there are 3");
    assert_eq!(report.code, 0);

    let down = etcd.address(2).to_string();
    etcd.process(2).kill().unwrap();
    etcd.leader_among(&[0, 1]).await.unwrap();
    let report = examine(&etcd.url()).await;
    report.assert_finds("quorum", "warning", &down);
    assert_eq!((report.code, complaints(&report).as_slice()), (0, &["quorum"][..]));
}

#[tokio::test]
async fn cluster_without_a_quorum_is_unavailable() {
    let mut etcd = Etcd::start_cluster().await.unwrap();
    let url = etcd.url();
    for number in [0, 1] {
        etcd.process(number).kill().unwrap();
    }
    let without_leader = async || {
        let output = doctor(&["--locks", &url]).await;
        Ok(String::from_utf8(output.stderr)?.contains("etcdserver: no leader"))
    };
    until_async(SOON, without_leader).await.unwrap();
    let output = doctor(&["--locks", &url]).await;
    assert_failed(&output, 69, &format!("{}: Connection refused", etcd.address(0)));
}

#[tokio::test]
async fn members_of_two_clusters_are_unfit() {
    let (one, other) = (Etcd::start().await.unwrap(), Etcd::start_cluster().await.unwrap());
    let url = format!("{},{}", one.url(), other.address(0));
    let report = examine(&url).await;
    report.assert_finds("quorum", "unfit", "members answer");
    assert_eq!(report.code, 1);
}

#[tokio::test]
async fn database_that_is_full_is_unfit() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes=16384"]).await.unwrap();
    // The first write that does not fit raises the alarm.
    let _ = etcd.etcdctl(&["put", "key", "value"]).await;
    let report = examine(&etcd.url()).await;
    report.assert_finds("alarms", "unfit", "NOSPACE");
    assert_eq!(report.code, 1);
}

#[tokio::test]
async fn user_without_permission_is_found() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.require_users().await.unwrap();
    let url = |user: &str| etcd.url().replace("etcd://", &format!("etcd://{user}:p%40ss@"));
    let report = examine(&url("guest")).await;
    report.assert_finds("locking", "unfit", "permission denied");
    assert_eq!(report.code, 1);
    let report = examine(&url("locker")).await;
    assert_eq!((report.code, complaints(&report).as_slice()), (0, &[][..]));
}
