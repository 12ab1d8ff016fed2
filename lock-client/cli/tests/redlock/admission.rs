//! Nodes that restarted, and their vote.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::{Proxy, Redis, process::Process, wait::until};

use super::nodes::{ALWAYS, Nodes};
use crate::command::{PATIENCE, assert_failed, code, events, lock_client, without_terminal};
use crate::programs::LOCK_CLIENT;

/// Above every clock: a lost counter starts below this.
const HIGH: u64 = 900_000_000_000_000;

/// A cluster whose nodes 0 and 1 issued a token that node 2 doesn't have; then node 0 restarted.
async fn restarted(arguments: &[&str]) -> Nodes {
    let mut nodes = Nodes::cluster(arguments).await;
    nodes.set_counters(HIGH).await;
    if arguments.contains(&"--save") {
        nodes.0[0].command::<()>(&["SAVE"]).await.unwrap();
    }
    assert_eq!(nodes.token_without(2).await, Ok(HIGH + 1));
    // It has missed the release, too.
    nodes.0[2].set("fenced:{r}:token", &HIGH.to_string()).await.unwrap();
    nodes.0[0].restart().await.unwrap();
    nodes
}

/// Gives the present process of a node a seat and a vote, on all nodes.
async fn forge_vote(nodes: &Nodes, node: usize) {
    let script = concat!(
        include_str!("../../../src/redlock/run_id.lua"),
        "local longest = string.match(ARGV[1], '^%S+ %d+ (%d+)')
        local vote = longest .. ' ' .. run_id() .. ' ' .. redis.sha1hex(ARGV[1])
        redis.call('HSET', KEYS[1], 'roster', ARGV[1], 'vote', vote)"
    );
    let roster: String = nodes.0[2].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    let seat = roster.lines().nth(node + 1).unwrap();
    let old = seat.split(' ').nth(1).unwrap();
    let roster = roster.replace(old, &nodes.0[node].info("run_id").await.unwrap());
    for node in &nodes.0 {
        let set = ["EVAL", script, "1", "fenced:node", &roster];
        node.command::<()>(&set).await.unwrap();
    }
}

#[tokio::test]
async fn node_that_lost_its_counters_has_no_vote_until_it_is_admitted() {
    let snapshots = ["--save", "3600", "1000"];
    for (arguments, state, kept) in
        [(&[][..], "no-cluster", None), (&snapshots, "restarted", Some(HIGH))]
    {
        let nodes = restarted(arguments).await;
        assert_eq!(nodes.counter(0).await, kept, "the node has lost the token");
        assert_eq!(nodes.states().await, [state, "voting", "voting"]);
        let rejected = nodes.token_without(1).await.unwrap_err();
        assert!(rejected.contains("node admit"), "{rejected}");
        assert_eq!(nodes.states().await[0], state, "no client gives it a vote");

        let admitted = nodes.admit(0).await;
        assert!(admitted.status.success(), "{admitted:?}");
        assert_eq!(events(&admitted)[0]["counters_raised"], 1);
        assert_eq!(nodes.counter(0).await, Some(HIGH + 1));
        assert_eq!(nodes.states().await, ["voting"; 3]);
        assert_eq!(nodes.token_without(1).await, Ok(HIGH + 2), "above all issued tokens");
    }
}

#[tokio::test]
async fn node_that_votes_without_its_counters_issues_a_token_twice() {
    for arguments in [&[][..], &["--save", "3600", "1000"]] {
        let nodes = restarted(arguments).await;
        forge_vote(&nodes, 0).await;
        assert_eq!(nodes.token_without(1).await, Ok(HIGH + 1), "a token that was issued before");
    }
}

/// No settings of the new process prove what the old one kept. This one's file is as old as the
/// moment when somebody switched it off, and the record in it is as old as the counters.
#[tokio::test]
async fn node_whose_file_was_switched_off_meanwhile_issues_no_token_twice() {
    let mut nodes = Nodes::cluster(&ALWAYS).await;
    nodes.set_counters(HIGH).await;
    nodes.0[0].command::<()>(&["CONFIG", "SET", "appendonly", "no"]).await.unwrap();
    assert_eq!(nodes.token_without(2).await, Ok(HIGH + 1));
    nodes.0[0].restart().await.unwrap();
    assert_eq!(nodes.counter(0).await, Some(HIGH), "it starts from the old file");
    let rejected = nodes.token_without(1).await.expect_err("a token that was issued before");
    assert!(rejected.contains("node admit"), "{rejected}");
    assert_eq!(nodes.states().await[0], "restarted");
}

#[tokio::test]
async fn restarted_node_with_every_write_on_disk_has_no_vote_either() {
    let nodes = restarted(&ALWAYS).await;
    assert_eq!(nodes.counter(0).await, Some(HIGH + 1), "it has lost nothing, but cannot prove it");
    assert!(nodes.token_without(1).await.is_err());
    assert_eq!(nodes.states().await, ["restarted", "voting", "voting"]);
    assert!(nodes.admit(0).await.status.success());
    assert_eq!(nodes.token_without(1).await, Ok(HIGH + 2));
}

#[tokio::test]
async fn promoted_replica_has_no_vote() {
    let nodes = Nodes::cluster(&ALWAYS).await;
    let replica = Redis::replica_of(&nodes.0[0]).await.unwrap();
    replica.catch_up(&nodes.0[0]).await.unwrap();
    replica.promote().await.unwrap();
    let urls = [replica.redis().url(), nodes.0[1].url(), nodes.0[2].url()].join(" ");
    let output = lock_client(&["node", "status", "--json", "--locks", &urls]).await;
    let address = replica.redis().url().split_once("://").unwrap().1.to_owned();
    let lines = events(&output);
    let replica = lines.iter().find(|line| line["node"] == address).unwrap();
    assert_eq!(replica["state"], "not-a-member", "{output:?}");
}

#[tokio::test]
async fn tokens_issued_during_an_admission_are_copied() {
    let mut nodes = Nodes::cluster_granting("3s", &[]).await;
    nodes.set_counters(HIGH).await;
    nodes.0[0].restart().await.unwrap();
    let asked = Instant::now();
    let issue = async {
        let mut last = None;
        while asked.elapsed() < Duration::from_millis(500) {
            last = Some(nodes.token().await.unwrap());
            // The release may have raised it here. No counter is copied yet.
            nodes.0[0].command::<()>(&["DEL", "fenced:{r}:token"]).await.unwrap();
        }
        last
    };
    let (admitted, last) = tokio::join!(nodes.admit(0), issue);
    assert!(admitted.status.success(), "{admitted:?}");
    assert!(asked.elapsed() >= Duration::from_millis(3_032), "the longest ttl, 1 % and 2 ms");
    assert_eq!(nodes.counter(0).await, last);
}

/// Somebody else may have written such keys. They stopped each admission.
#[tokio::test]
async fn keys_that_are_no_counters_are_skipped_and_named() {
    let mut nodes = Nodes::cluster_granting("500ms", &[]).await;
    nodes.set_counters(HIGH).await;
    nodes.0[0].restart().await.unwrap();
    let keys = ["no-string", "no-number", "no-string-here", "sign", "too-high"];
    let [no_string, no_number, no_string_here, sign, too_high] =
        keys.map(|name| format!("fenced:{{{name}}}:token"));
    for node in &nodes.0[1..] {
        node.set(&sign, "+7").await.unwrap();
        node.set(&too_high, "1000000000000000").await.unwrap();
        node.command::<()>(&["HSET", &no_string, "a", "b"]).await.unwrap();
        node.set(&no_number, "x").await.unwrap();
        node.set(&no_string_here, "7").await.unwrap();
        let not_utf8 = "return redis.call('SET', 'fenced:{\\255}:token', '7')";
        node.command::<()>(&["EVAL", not_utf8, "0"]).await.unwrap();
    }
    nodes.0[0].command::<()>(&["HSET", &no_string_here, "a", "b"]).await.unwrap();
    // Higher than any token, so that it would stay above the counter of the others.
    nodes.0[0].set("fenced:{r}:token", "1000000000000000").await.unwrap();
    let admitted = nodes.admit(0).await;
    assert!(admitted.status.success(), "{admitted:?}");
    let admitted = &events(&admitted)[0];
    assert_eq!(admitted["counters_raised"], 2, "the key that was no counter here is among them");
    let not_utf8 = r"fenced:{\xff}:token".to_owned();
    let skipped = [&not_utf8, &no_number, &no_string, &sign, &too_high];
    assert_eq!(admitted["skipped"], serde_json::json!(skipped));
    assert_eq!(nodes.counter(0).await, Some(HIGH));
    assert!(nodes.command(&["status"]).await.status.success());
}

/// The request compares before it changes anything.
#[tokio::test]
async fn step_that_comes_too_late_is_reported() {
    let mut nodes = Nodes::start(3, &[]).await;
    let (proxy, mut urls) = (Proxy::start(nodes.0[0].socket()).await.unwrap(), nodes.urls());
    urls[0] = proxy.url("redis");
    let (all, node) = (urls.join(" "), &urls[0]);
    let started = lock_client(&["node", "init", "--max-ttl", "500ms", "--locks", &all]).await;
    assert!(started.status.success(), "{started:?}");
    nodes.0[0].restart().await.unwrap();
    // Only the admission names the vote: the longest ttl, and the process.
    let held = proxy.hold(&format!("500 {} ", nodes.0[0].info("run_id").await.unwrap()));
    let admit = ["node", "admit", "--locks", &all, "--node", node];
    let change = async {
        let request = held.caught().await.unwrap();
        nodes.0[0].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
        request.deliver();
    };
    let (admitted, ()) = tokio::join!(lock_client(&admit), change);
    assert_failed(&admitted, 69, "not admitted yet: it belongs to no cluster");
}

/// Without its counters, it must not vote. The message must not advise to delete any.
#[tokio::test]
async fn node_whose_memory_is_full_is_not_admitted_for_that_reason_alone() {
    let mut nodes = Nodes::cluster_granting("3s", &[]).await;
    nodes.set_counters(HIGH).await;
    nodes.0[0].restart().await.unwrap();
    let (mut admission, folder) = admission(&nodes).await;
    nodes.0[0].command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    let code = admission.exit(PATIENCE).await.unwrap().code();
    let stderr = std::fs::read_to_string(folder.path().join("admit.stderr")).unwrap();
    assert_eq!(code, Some(69), "{stderr}");
    assert!(stderr.contains("OOM") && !stderr.contains("delete"), "{stderr}");
}

#[tokio::test]
async fn node_is_not_admitted_if_a_source_restarts_meanwhile() {
    let mut nodes = Nodes::cluster_granting("3s", &[]).await;
    nodes.0[0].restart().await.unwrap();
    let (mut admission, folder) = admission(&nodes).await;
    nodes.0[1].restart().await.unwrap();
    let code = admission.exit(PATIENCE).await.unwrap().code();
    let stderr = std::fs::read_to_string(folder.path().join("admit.stderr")).unwrap();
    assert_eq!(code, Some(69), "{stderr}");
    assert_eq!(nodes.states().await[0], "waiting", "{stderr}");
}

#[tokio::test]
async fn node_that_restarts_while_it_waits_starts_a_new_wait() {
    let mut nodes = Nodes::cluster_granting("3s", &[]).await;
    nodes.0[0].restart().await.unwrap();
    let (mut admission, _folder) = admission(&nodes).await;
    let restarted = Instant::now();
    nodes.0[0].restart().await.unwrap();
    assert_eq!(admission.exit(PATIENCE).await.unwrap().code(), Some(0));
    assert!(restarted.elapsed() >= Duration::from_millis(3_032), "{:?}", restarted.elapsed());
    assert_eq!(nodes.states().await, ["voting"; 3]);
}

#[tokio::test]
async fn signal_ends_an_admission_and_the_node_stays_without_a_vote() {
    for (signal, expected) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut nodes = Nodes::cluster_granting("60s", &[]).await;
        nodes.set_counters(HIGH).await;
        nodes.0[0].restart().await.unwrap();
        let (mut admission, _folder) = admission(&nodes).await;
        admission.signal(signal).unwrap();
        assert_eq!(code(admission.exit(PATIENCE).await.unwrap()), expected);
        assert_eq!(nodes.fields(0).await, ["roster"]);
    }
}

/// Starts an admission of node 0, and waits until it waits.
async fn admission(nodes: &Nodes) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (urls, node) = (nodes.urls().join(" "), nodes.0[0].url());
    let mut command = without_terminal(LOCK_CLIENT);
    command.args(["node", "admit", "--locks", &urls, "--node", &node]);
    let admission = Process::spawn("admit", &command, folder.path()).unwrap();
    let stderr = || std::fs::read_to_string(folder.path().join("admit.stderr"));
    until(PATIENCE, || Ok(stderr()?.contains("earlier locks have expired"))).await.unwrap();
    (admission, folder)
}

#[tokio::test]
async fn too_few_intact_nodes_admit_no_node() {
    let mut nodes = Nodes::cluster(&[]).await;
    for node in [0, 1] {
        nodes.0[node].restart().await.unwrap();
    }
    assert_failed(&nodes.admit(0).await, 69, "1 of 3 members vote, and 2 must");
    assert_failed(&nodes.admit(0).await, 69, "lock-client node init --again");
    let stranger = nodes.command(&["admit", "--node", "redis://127.0.0.1:1"]).await;
    assert_failed(&stranger, 69, "refused");
}

#[tokio::test]
async fn password_of_the_node_to_admit_may_be_left_out() {
    let mut nodes = Nodes::start(4, &["--requirepass", "secret"]).await;
    let urls: Vec<_> = nodes.0.iter().map(|node| node.url_as("default", "secret")).collect();
    let urls = urls[..3].join(" ");
    let command = async |more: &[&str]| {
        lock_client(&[&["node", more[0], "--locks", &urls], &more[1..]].concat()).await
    };
    assert!(command(&["init", "--max-ttl", "500ms"]).await.status.success());
    nodes.0[0].restart().await.unwrap();
    let [zero, one, three] = [0, 1, 3].map(|node| nodes.0[node].url());
    for admit in [&["--node", &zero][..], &["--node", &three, "--instead-of", &one]] {
        let admitted = command(&[&["admit"], admit].concat()).await;
        assert!(admitted.status.success(), "{admitted:?}");
    }
}
