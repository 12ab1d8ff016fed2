//! What the doctor finds if its user lacks permissions.

use testbed::Redis;

use super::{SAFE, cure, doctor, examine};
use crate::command::lock_client;

#[tokio::test]
async fn missing_permissions_are_reported_and_can_be_cured() {
    let redis = Redis::start_with(&SAFE).await.unwrap();
    let url = redis.url_as("bob", "secret");
    let keys = "~* &* +@all";
    let cases: [(&str, &str, &[&str]); 9] = [
        ("-eval -evalsha", keys, &["locking"]),
        ("-eval", keys, &["locking"]),
        ("-set", keys, &["locking"]),
        ("-pexpire", keys, &["locking"]),
        ("-time", keys, &["clock", "locking"]),
        ("-publish", keys, &["locking", "waking"]),
        ("-subscribe", keys, &["locking", "waking"]),
        ("", "~fenced:* &orders +@all", &["locking", "waking"]),
        ("", "~orders:* &* +@all", &["locking"]),
    ];
    for (forbidden, allowed, complaints) in cases {
        // Forget the scripts, so that EVAL is needed again.
        redis.command::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
        let rules = format!("ACL SETUSER bob reset on >secret {allowed} {forbidden}");
        redis.command::<()>(&rules.split_whitespace().collect::<Vec<_>>()).await.unwrap();
        let report = examine(&url).await;
        report.assert_finds("locking", "unfit", "user bob");
        assert_eq!((report.code, report.complaints().as_slice()), (1, complaints), "{rules}");
        assert_eq!(report.document["user"], "bob");
        assert_eq!(redis.command::<u64>(&["DBSIZE"]).await.unwrap(), 0, "{rules}");

        cure(&redis, report.worst("locking")).await;
        let cured = examine(&url).await;
        assert_eq!((cured.code, cured.complaints().as_slice()), (0, &[][..]), "{rules}");
    }
}

#[tokio::test]
async fn advised_permissions_are_enough_for_locks() {
    let redis = Redis::start_with(&SAFE).await.unwrap();
    let url = redis.url_as("bob", "secret");
    let nothing = ["ACL", "SETUSER", "bob", "reset", "on", ">secret"];
    redis.command::<()>(&nothing).await.unwrap();
    let report = examine(&url).await;
    report.assert_finds("locking", "unfit", "can't acquire a lock");
    report.assert_finds("waking", "warning", "may not subscribe");
    cure(&redis, report.worst("locking")).await;
    let cured = examine(&url).await;
    cured.assert_finds("locking", "ok", "acquired, renewed and released");
    cured.assert_finds("waking", "ok", "arrive");
    assert_eq!(redis.command::<u64>(&["DBSIZE"]).await.unwrap(), 0);

    for command in [&["acquire", "r", "--ttl", "60s"][..], &["list"]] {
        let done = lock_client(&[command, &["--locks", &url]].concat()).await;
        assert!(done.status.success() && !done.stdout.is_empty(), "{done:?}");
    }
}

/// The permissions of the guide, between two phrases of it.
fn guide(after: &str, before: &str) -> String {
    let guide = include_str!("../../../README.md");
    let (_, rest) = guide.split_once(after).unwrap();
    rest.split_once(before).unwrap().0.to_owned()
}

#[tokio::test]
async fn permissions_of_the_guide_are_enough_for_list_and_doctor() {
    let redis = Redis::start_with(&SAFE).await.unwrap();
    let url = redis.url_as("locker", "PASSWORD");
    let locks = guide("no more rights than these:\n\n```text\n", "```");
    let words: Vec<_> = locks.split_whitespace().collect();
    redis.command::<()>(&words).await.unwrap();
    for command in [&["acquire", "r", "--ttl", "60s"][..], &["list"]] {
        let done = lock_client(&[command, &["--locks", &url]].concat()).await;
        assert!(done.status.success() && !done.stdout.is_empty(), "{done:?}");
    }
    let besides = guide("`lock-client doctor` needs `", "` too");
    let words = format!("ACL SETUSER locker {besides}");
    assert_ne!(examine(&url).await.code, 0, "the control");
    redis.command::<()>(&words.split(' ').collect::<Vec<_>>()).await.unwrap();
    let report = examine(&url).await;
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]), "{}", report.document);
}

#[tokio::test]
async fn unseen_danger_to_tokens_is_not_ok() {
    let redis = Redis::start_with(&SAFE).await.unwrap();
    let url = redis.url_as("bob", "secret");
    let cases: [(&str, &[&str]); 3] = [
        ("-config", &["appendfsync", "no-appendfsync-on-rewrite"]),
        ("-info", &["version", "aof_last_write_status", "primary", "connections"]),
        ("-info -config", &["version", "appendonly", "maxmemory-policy", "primary", "connections"]),
    ];
    for (forbidden, complaints) in cases {
        let rules = format!("ACL SETUSER bob reset on >secret ~* &* +@all {forbidden}");
        redis.command::<()>(&rules.split(' ').collect::<Vec<_>>()).await.unwrap();
        let report = examine(&url).await;
        assert_eq!((report.code, report.complaints().as_slice()), (3, complaints), "{forbidden}");
        for &check in complaints {
            let is_harmless = ["version", "connections"].contains(&check);
            let verdict = if is_harmless { "warning" } else { "unseen" };
            report.assert_finds(check, verdict, "could not be seen: NOPERM");
        }
        assert_eq!(report.document["verdict"], "unseen");
        let text = doctor(&["--locks", &url]).await;
        let conclusion = "\nUNSEEN: something that was acknowledged may be lost.\n";
        assert!(String::from_utf8(text.stdout).unwrap().ends_with(conclusion));
    }

    // Hosting services hide CONFIG. What can be seen is still reported.
    let hidden = ["--rename-command", "CONFIG", "hidden"];
    let redis = Redis::start_with(&[&SAFE[..], &hidden].concat()).await.unwrap();
    let report = examine(&redis.url()).await;
    report.assert_finds("appendfsync", "unseen", "could not be seen: ERR unknown command");
    assert_eq!(report.code, 3);
    let redis = Redis::start_with(&hidden).await.unwrap();
    let report = examine(&redis.url()).await;
    report.assert_finds("appendonly", "unfit-for-fence", "no; whether there are snapshots");
    assert_eq!(report.code, 4);
}
