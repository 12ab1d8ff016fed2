//! `lock-client doctor`, on healthy servers, and on servers with one problem each.

mod answers;
mod databases;
mod etcd;
mod permissions;
mod slots;
mod zookeeper;

use std::{
    process::{Command, Output},
    time::Duration,
};

use crate::programs::LOCK_CLIENT;
use ::doctor::Verdict;
use serde_json::Value;
use testbed::{Redis, RedisCluster, Sentinels, wait::until_async};

/// The settings of a Redis that loses no token.
const SAFE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const SOON: Duration = Duration::from_secs(30);

async fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(LOCK_CLIENT);
    command.arg("doctor").args(arguments).env_remove("FENCED_LOCKS");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Whether the table of all checks has this one.
pub(crate) fn is_in_the_readme(check: &Value) -> bool {
    let name = format!("`{}`", check["name"].as_str().unwrap());
    let mut rows = include_str!("../../../doctor/README.md").lines();
    rows.any(|row| row.split('|').nth(2).is_some_and(|cell| cell.contains(&name)))
}

/// The checks, and the exit code.
struct Report {
    document: Value,
    code: i32,
}

async fn examine(url: &str) -> Report {
    // A service that has just started may be slow on a busy machine.
    let output = doctor(&["--locks", url, "--json", "--answer-timeout", "5s"]).await;
    let parsed = serde_json::from_slice(&output.stdout);
    let document: Value = parsed.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    for check in document["checks"].as_array().unwrap() {
        let members = check.as_object().unwrap();
        for member in ["name", "verdict", "found", "why", "cure"] {
            assert!(members.contains_key(member), "{member} is in {check}");
        }
        assert!(is_in_the_readme(check), "{check}");
        let is_ok = check["verdict"] == "ok";
        assert_eq!(check["why"].is_null(), is_ok, "{check}");
        assert_eq!(check["cure"].is_null(), is_ok, "{check}");
        let same = document["checks"].as_array().unwrap().iter();
        assert_eq!(same.filter(|other| *other == check).count(), 1, "once: {check}");
    }
    let verdict: Verdict = document["verdict"].as_str().unwrap().parse().unwrap();
    let code = output.status.code().unwrap();
    assert_eq!(code, i32::from(verdict.exit_code()), "{document}");
    Report { document, code }
}

impl Report {
    /// The worst check of this name.
    fn worst(&self, name: &str) -> &Value {
        let checks = self.document["checks"].as_array().unwrap().iter();
        let rank =
            |check: &&Value| -> Verdict { check["verdict"].as_str().unwrap().parse().unwrap() };
        let worst = checks.filter(|check| check["name"] == name).max_by_key(rank);
        worst.unwrap_or_else(|| panic!("{name}: {:#}", self.document))
    }

    /// The names of the checks that are not ok, each once.
    fn complaints(&self) -> Vec<&str> {
        let checks = self.document["checks"].as_array().unwrap().iter();
        let bad = checks.filter(|check| check["verdict"] != "ok");
        let mut names: Vec<_> = bad.map(|check| check["name"].as_str().unwrap()).collect();
        names.dedup();
        names
    }

    #[track_caller]
    fn assert_finds(&self, name: &str, verdict: &str, found: &str) {
        let check = self.worst(name);
        assert_eq!(check["verdict"], verdict, "{check}");
        assert!(check["found"].as_str().unwrap().contains(found), "{found:?} is in {check}");
    }
}

/// Applies the cure of a check.
async fn cure(redis: &Redis, check: &Value) {
    for command in check["cure"]["commands"].as_array().unwrap() {
        let words: Vec<_> = command.as_str().unwrap().split(' ').collect();
        match redis.command::<()>(&words).await {
            // As the advice says: a user with all keys needs no pattern.
            Err(error) if error.to_string().contains("does not have any effect") => {}
            result => result.unwrap(),
        }
    }
}

#[tokio::test]
async fn redis_that_loses_nothing_is_ok_and_is_left_unchanged() {
    for redis in [Redis::start_with(&SAFE).await, Redis::start_on_tcp(&SAFE).await] {
        let redis = redis.unwrap();
        let report = examine(&redis.url()).await;
        assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
        assert_eq!(report.document["verdict"], "ok");
        assert_eq!(report.document["user"], "default");
        let version = redis.info("redis_version").await.unwrap();
        assert_eq!(report.document["system"], format!("redis {version}"));
        assert_eq!(redis.command::<u64>(&["DBSIZE"]).await.unwrap(), 0, "nothing is left behind");
    }
}

#[tokio::test]
async fn settings_that_lose_writes_at_a_power_loss_are_unfit_for_a_fence_and_can_be_cured() {
    let snapshots = ["--save", "3600", "1"];
    let every_second = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let whenever = ["--appendonly", "yes", "--appendfsync", "no"];
    let except_on_rewrite = [&SAFE[..], &["--no-appendfsync-on-rewrite", "yes"]].concat();
    let cases: [(&[&str], &str, &str); 5] = [
        (&snapshots, "appendonly", "snapshots only (save 3600 1)"),
        (&[], "appendonly", "nothing is kept on disk"),
        (&every_second, "appendfsync", "everysec"),
        (&whenever, "appendfsync", "no"),
        (&except_on_rewrite, "no-appendfsync-on-rewrite", "yes"),
    ];
    for (arguments, name, found) in cases {
        let redis = Redis::start_with(arguments).await.unwrap();
        let report = examine(&redis.url()).await;
        report.assert_finds(name, "unfit-for-fence", found);
        assert_eq!((report.code, report.complaints().as_slice()), (4, &[name][..]));
        cure(&redis, report.worst(name)).await;
        let cured = examine(&redis.url()).await;
        assert_eq!((cured.code, cured.complaints().as_slice()), (0, &[][..]), "{arguments:?}");
    }
}

#[tokio::test]
async fn limit_of_connections_is_compared_with_those_that_are_open() {
    let redis = Redis::start_with(&[&SAFE[..], &["--maxclients", "16"]].concat()).await.unwrap();
    let report = examine(&redis.url()).await;
    report.assert_finds("connections", "warning", "at most 16, ");
    assert_eq!((report.code, report.complaints().as_slice()), (0, &["connections"][..]));
    // The control: two of each of ten waiting clients find room.
    let _: String = redis.command(&["CONFIG", "SET", "maxclients", "60"]).await.unwrap();
    let report = examine(&redis.url()).await;
    report.assert_finds("connections", "ok", "waiting clients");
    assert_eq!((report.code, report.complaints().as_slice()), (0, &[][..]));
}

// Only Linux has a device that is always full.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn append_only_file_with_failing_writes_is_unfit() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("appendonlydir");
    std::fs::create_dir(&files).unwrap();
    std::os::unix::fs::symlink("/dev/full", files.join("appendonly.aof.1.incr.aof")).unwrap();
    let folder = folder.path().display().to_string();
    let arguments = ["--appendonly", "yes", "--appendfsync", "no", "--dir", &folder];
    let redis = Redis::start_with(&arguments).await.unwrap();
    redis.set("key", "1").await.ok();
    let has_failed = async || Ok(redis.info("aof_last_write_status").await? == "err");
    until_async(SOON, has_failed).await.unwrap();
    let report = examine(&redis.url()).await;
    report.assert_finds("aof_last_write_status", "unfit-for-fence", "err");
    report.assert_finds("locking", "unfit", "MISCONF");
    assert_eq!(report.code, 1);
}

#[tokio::test]
async fn eviction_policies_are_rated_by_the_keys_that_they_evict() {
    let cases = [
        ("allkeys-lru", "100mb", "unfit-for-fence", 4, "maxmemory is 104857600"),
        ("allkeys-random", "0", "unfit-for-fence", 4, "maxmemory is 0, where 0 is no limit"),
        ("volatile-ttl", "100mb", "warning", 0, "volatile-ttl"),
        ("noeviction", "100mb", "ok", 0, "noeviction"),
    ];
    let name = "maxmemory-policy";
    for (policy, limit, verdict, code, found) in cases {
        let eviction = ["--maxmemory-policy", policy, "--maxmemory", limit];
        let redis = Redis::start_with(&[&SAFE[..], &eviction].concat()).await.unwrap();
        let report = examine(&redis.url()).await;
        report.assert_finds(name, verdict, found);
        assert_eq!(report.code, code, "{policy}");
        if verdict != "ok" {
            assert_eq!(report.complaints(), [name]);
            cure(&redis, report.worst(name)).await;
            assert!(examine(&redis.url()).await.complaints().is_empty(), "{policy} is cured");
        }
    }
}

#[tokio::test]
async fn replicas_are_unfit_for_a_fence_and_their_lag_is_reported() {
    let primary = Redis::start_with(&SAFE).await.unwrap();
    let alone = examine(&primary.url()).await;
    alone.assert_finds("replicas", "ok", "none is connected");

    let replica = Redis::replica_of(&primary).await.unwrap();
    let address = replica.redis().address().unwrap();
    let online = format!("ip=127.0.0.1,port={},state=online", address.port());
    let finds = async |words: &str| {
        let report = examine(&primary.url()).await;
        Ok(report.worst("replicas")["found"].as_str().unwrap().contains(words))
    };
    until_async(SOON, async || finds(&online).await).await.unwrap();
    let report = examine(&primary.url()).await;
    report.assert_finds("replicas", "unfit-for-fence", "1, which are asynchronous: ip=");
    report.assert_finds("replicas", "unfit-for-fence", "no Sentinel was seen");
    assert_eq!((report.code, report.complaints().as_slice()), (4, &["replicas"][..]));

    replica.cut();
    until_async(SOON, async || finds("lag=5").await).await.unwrap();
}

#[tokio::test]
async fn replica_is_unfit_for_locks() {
    let primary = Redis::start().await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    let report = examine(&replica.redis().url()).await;
    report.assert_finds("primary", "unfit", "a replica; its primary is 127.0.0.1");
    report.assert_finds("locking", "unfit", "it is a replica, which takes no writes");
    assert_ne!(report.code, 0);

    replica.redis().command::<()>(&["CONFIG", "SET", "replica-read-only", "no"]).await.unwrap();
    let report = examine(&replica.redis().url()).await;
    report.assert_finds("primary", "unfit", "replica-read-only is 0");
    report.assert_finds("locking", "ok", "");

    replica.promote().await.unwrap();
    examine(&replica.redis().url()).await.assert_finds("primary", "ok", "a primary");
}

#[tokio::test]
async fn sentinels_and_redis_clusters_are_recognised() {
    let mut world = Sentinels::start().await.unwrap();
    let report = examine(&world.primary().url()).await;
    report.assert_finds("replicas", "unfit-for-fence", "a Sentinel promotes one by itself");
    let report = examine(&world.url()).await;
    report.assert_finds("replicas", "unfit-for-fence", "a Sentinel promotes one by itself");
    report.assert_finds("locking", "ok", "");
    let report = examine(&world.sentinels()[0].url()).await;
    report.assert_finds("version", "unfit", "redis ");

    let mut cluster = RedisCluster::start().await.unwrap();
    let report = examine(&cluster.url()).await;
    report.assert_finds("cluster", "warning", "one node of a Redis Cluster");
    report.assert_finds("locking", "ok", "");
    for node in cluster.nodes() {
        let report = examine(&node.url()).await;
        report.assert_finds("cluster", "warning", "one node of a Redis Cluster");
        report.assert_finds("locking", "unfit", "name it by redis+cluster://");
        assert_eq!(node.command::<u64>(&["DBSIZE"]).await.unwrap(), 0);
    }
}
