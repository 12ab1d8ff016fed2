//! `lock-client doctor`, on healthy servers, and on servers with one problem each.

mod answers;
mod databases;
mod etcd;
mod permissions;
mod zookeeper;

use std::{
    process::{Command, Output},
    time::Duration,
};

use crate::programs::LOCK_CLIENT;
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

/// The findings, and the exit code.
struct Report {
    document: Value,
    code: i32,
}

async fn examine(url: &str) -> Report {
    // A service that has just started may be slow on a busy machine.
    let output = doctor(&["--locks", url, "--json", "--answer-timeout", "5s"]).await;
    let parsed = serde_json::from_slice(&output.stdout);
    let document: Value = parsed.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    for finding in document["findings"].as_array().unwrap() {
        let members = finding.as_object().unwrap();
        for member in ["check", "severity", "found", "endangers", "cure"] {
            assert!(members.contains_key(member), "{member} is in {finding}");
        }
        let is_ok = finding["severity"] == "ok";
        assert_eq!(finding["endangers"].is_null(), is_ok, "{finding}");
        assert_eq!(finding["cure"].is_null(), is_ok, "{finding}");
        let same = document["findings"].as_array().unwrap().iter();
        assert_eq!(same.filter(|other| *other == finding).count(), 1, "once: {finding}");
    }
    Report { document, code: output.status.code().unwrap() }
}

impl Report {
    /// The worst finding of a check.
    fn worst(&self, check: &str) -> &Value {
        let findings = self.document["findings"].as_array().unwrap().iter();
        let rank = |finding: &&Value| {
            let severities = ["ok", "warning", "unseen", "unusable", "token-loss"];
            severities.iter().position(|&severity| finding["severity"] == severity).unwrap()
        };
        findings.filter(|finding| finding["check"] == check).max_by_key(rank).unwrap()
    }

    /// The checks with findings that are not ok, each once.
    fn complaints(&self) -> Vec<&str> {
        let findings = self.document["findings"].as_array().unwrap().iter();
        let bad = findings.filter(|finding| finding["severity"] != "ok");
        let mut checks: Vec<_> = bad.map(|finding| finding["check"].as_str().unwrap()).collect();
        checks.dedup();
        checks
    }

    #[track_caller]
    fn assert_finds(&self, check: &str, severity: &str, found: &str) {
        let finding = self.worst(check);
        assert_eq!(finding["severity"], severity, "{finding}");
        assert!(finding["found"].as_str().unwrap().contains(found), "{found:?} is in {finding}");
    }
}

/// Applies the cure of a finding.
async fn cure(redis: &Redis, finding: &Value) {
    for command in finding["cure"]["commands"].as_array().unwrap() {
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
        assert_eq!(report.document["server"], format!("redis {version}"));
        assert_eq!(redis.command::<u64>(&["DBSIZE"]).await.unwrap(), 0, "nothing is left behind");
    }
}

#[tokio::test]
async fn settings_that_lose_writes_at_a_power_loss_are_a_token_loss_and_can_be_cured() {
    let snapshots = ["--save", "3600", "1"];
    let every_second = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let whenever = ["--appendonly", "yes", "--appendfsync", "no"];
    let except_on_rewrite = [&SAFE[..], &["--no-appendfsync-on-rewrite", "yes"]].concat();
    let cases: [(&[&str], &str); 5] = [
        (&snapshots, "snapshots only (save 3600 1)"),
        (&[], "nothing is kept on disk"),
        (&every_second, "appendfsync everysec"),
        (&whenever, "appendfsync no"),
        (&except_on_rewrite, "no-appendfsync-on-rewrite yes"),
    ];
    for (arguments, found) in cases {
        let redis = Redis::start_with(arguments).await.unwrap();
        let report = examine(&redis.url()).await;
        report.assert_finds("persistence", "token-loss", found);
        assert_eq!((report.code, report.complaints().as_slice()), (1, &["persistence"][..]));
        cure(&redis, report.worst("persistence")).await;
        let cured = examine(&redis.url()).await;
        assert_eq!((cured.code, cured.complaints().as_slice()), (0, &[][..]), "{arguments:?}");
    }
}

// Only Linux has a device that is always full.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn append_only_file_with_failing_writes_is_a_token_loss() {
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
    let findings = report.document["findings"].as_array().unwrap().iter();
    let failed = |finding: &&Value| finding["found"].as_str().unwrap().contains("has failed");
    assert_eq!(findings.filter(failed).count(), 1, "{}", report.document);
    report.assert_finds("locking", "unusable", "MISCONF");
    assert_eq!(report.code, 1);
}

#[tokio::test]
async fn eviction_policies_are_rated_by_the_keys_that_they_evict() {
    let cases = [
        ("allkeys-lru", "100mb", "token-loss", 1, "maxmemory 104857600"),
        ("allkeys-random", "0", "token-loss", 1, "maxmemory is 0"),
        ("volatile-ttl", "100mb", "warning", 0, "volatile-ttl"),
        ("noeviction", "100mb", "ok", 0, "noeviction"),
    ];
    for (policy, limit, severity, code, found) in cases {
        let eviction = ["--maxmemory-policy", policy, "--maxmemory", limit];
        let redis = Redis::start_with(&[&SAFE[..], &eviction].concat()).await.unwrap();
        let report = examine(&redis.url()).await;
        report.assert_finds("eviction", severity, found);
        assert_eq!(report.code, code, "{policy}");
        if severity != "ok" {
            assert_eq!(report.complaints(), ["eviction"]);
            cure(&redis, report.worst("eviction")).await;
            assert!(examine(&redis.url()).await.complaints().is_empty(), "{policy} is cured");
        }
    }
}

#[tokio::test]
async fn replicas_are_a_token_loss_and_their_lag_is_reported() {
    let primary = Redis::start_with(&SAFE).await.unwrap();
    let alone = examine(&primary.url()).await;
    alone.assert_finds("replication", "ok", "without replicas");

    let replica = Redis::replica_of(&primary).await.unwrap();
    let address = replica.redis().address().unwrap().to_string();
    let lag = |report: &Report| {
        let findings = report.document["findings"].as_array().unwrap().iter();
        let is_of_replica =
            |finding: &&Value| finding["found"].as_str().unwrap().contains(&address);
        findings.filter(is_of_replica).map(|finding| finding["severity"].clone()).next()
    };
    let is_near = async || Ok(lag(&examine(&primary.url()).await) == Some("ok".into()));
    until_async(SOON, is_near).await.unwrap();
    let report = examine(&primary.url()).await;
    report.assert_finds("replication", "token-loss", "with replicas: 1; no Sentinel was seen");
    assert_eq!((report.code, report.complaints().as_slice()), (1, &["replication"][..]));

    replica.cut();
    let is_behind = async || Ok(lag(&examine(&primary.url()).await) == Some("warning".into()));
    until_async(SOON, is_behind).await.unwrap();
}

#[tokio::test]
async fn replica_is_unusable_for_locks() {
    let primary = Redis::start().await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    let report = examine(&replica.redis().url()).await;
    report.assert_finds("replication", "unusable", "a replica; its primary is 127.0.0.1");
    report.assert_finds("locking", "unusable", "ReadOnly");
    assert_ne!(report.code, 0);

    replica.redis().command::<()>(&["CONFIG", "SET", "replica-read-only", "no"]).await.unwrap();
    let report = examine(&replica.redis().url()).await;
    report.assert_finds("replication", "token-loss", "and it accepts writes");
    report.assert_finds("locking", "ok", "");

    replica.promote().await.unwrap();
    examine(&replica.redis().url()).await.assert_finds("replication", "ok", "without replicas");
}

#[tokio::test]
async fn sentinels_and_redis_clusters_are_recognised() {
    let mut world = Sentinels::start().await.unwrap();
    let report = examine(&world.primary().url()).await;
    report.assert_finds("replication", "token-loss", "a Sentinel promotes one by itself");
    let report = examine(&world.url()).await;
    report.assert_finds("replication", "token-loss", "a Sentinel promotes one by itself");
    report.assert_finds("locking", "ok", "");
    let report = examine(&world.sentinels()[0].url()).await;
    report.assert_finds("version", "unusable", "is a Sentinel");

    let mut cluster = RedisCluster::start().await.unwrap();
    let report = examine(&cluster.url()).await;
    report.assert_finds("replication", "warning", "one node of a Redis Cluster");
    report.assert_finds("locking", "ok", "");
    for node in cluster.nodes() {
        let report = examine(&node.url()).await;
        report.assert_finds("replication", "warning", "one node of a Redis Cluster");
        report.assert_finds("locking", "unusable", "name it by redis+cluster://");
        assert_eq!(node.command::<u64>(&["DBSIZE"]).await.unwrap(), 0);
    }
}
