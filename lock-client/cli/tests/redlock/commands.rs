//! The commands for locks, on the nodes of a Redlock cluster.

use std::process::Command;

use serde_json::{Value, json};
use testbed::{RedlockNodes, process::Process, wait::until_async};

use crate::cluster::{COUNTER, LOCK, cluster_of, set_counters, values};
use crate::command::{
    BUSY, LOST, PATIENCE, assert_failed, command, events, lock_client, output, without_terminal,
};
use crate::programs::LOCK_CLIENT;

/// The command, with the nodes as arguments.
async fn with(urls: &[String], arguments: &[&str]) -> std::process::Output {
    let (subcommand, others) = arguments.split_first().unwrap();
    let mut command = command(&[subcommand]);
    for url in urls {
        command.args(["--locks", url]);
    }
    command.args(others);
    output(command).await
}

/// Waits until the lock stands on so many nodes, and returns its status. A status may miss a node
/// that is late.
async fn until_on(urls: &[String], nodes: usize) -> Value {
    let status = async || events(&with(urls, &["status", "r"]).await).remove(0);
    until_async(PATIENCE, async || Ok(status().await["nodes"] == nodes)).await.unwrap();
    status().await
}

async fn cluster_before(token: u64) -> RedlockNodes {
    let cluster = cluster_of(3).await;
    set_counters(&cluster, &[token - 1; 3]).await;
    cluster
}

#[tokio::test]
async fn inner_runs_find_the_nodes_and_the_lock_of_the_outer_run() {
    let cluster = cluster_before(33).await;
    let lock_client = LOCK_CLIENT;
    let script = r#"
        echo $FENCING_TOKEN
        "$0" run r -- sh -c 'echo $FENCING_TOKEN'
        "$0" status r
        "$0" run r2 --no-wait -- "$0" run r -- sh -c 'echo $FENCING_TOKEN'"#;
    let mut command = command(&["run", "r", "--", "sh", "-c", script]);
    command.arg(lock_client).env("FENCED_LOCKS", format!("{} ", cluster.urls().join(" ")));
    let output = output(command).await;
    let printed = String::from_utf8(output.stdout).unwrap();
    let [first, second, status, third] = printed.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!([first, second, third], ["33"; 3], "{printed}");
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    assert_eq!((&status["held"], &status["token"]), (&json!(true), &json!(33)));
    // A release succeeds on a majority. The command waits until all nodes have it.
    assert_eq!(values(cluster.nodes(), LOCK).await, vec![None; 3]);
}

#[tokio::test]
async fn handle_passes_a_lock_of_several_nodes_from_one_process_to_the_next() {
    let cluster = cluster_before(33).await;
    let urls = cluster.urls();
    let acquired = with(&urls, &["acquire", "r", "--ttl", "60s"]).await;
    let [handle] = events(&acquired).try_into().unwrap();
    assert_eq!((&handle["token"], &handle["grant"]), (&json!(33), &json!(33)));
    let holder = handle["holder"].as_str().unwrap();
    assert_eq!(values(cluster.nodes(), LOCK).await, vec![Some(format!("32 {holder}")); 3]);
    until_on(&urls, 3).await;
    let busy = with(&urls, &["acquire", "r", "--no-wait"]).await;
    assert_failed(&busy, 75, BUSY);
    let renewed = with(&urls, &["renew", &handle.to_string()]).await;
    let [renewed] = events(&renewed).try_into().unwrap();
    let released = with(&urls, &["release", &renewed.to_string()]).await;
    assert!(released.status.success(), "{released:?}");
    assert_eq!(values(cluster.nodes(), LOCK).await, vec![None; 3]);
    let late = with(&urls, &["release", &renewed.to_string()]).await;
    assert_failed(&late, 79, LOST);
}

/// Each fault frees two of five nodes, and another client's tries raise their counters.
#[tokio::test]
async fn newest_handle_counts_the_nodes_that_the_lock_has_taken_back() {
    let cluster = cluster_of(5).await;
    let urls = cluster.urls();
    let [mut handle] =
        events(&with(&urls, &["acquire", "r", "--ttl", "60s"]).await).try_into().unwrap();
    let first = handle.clone();
    for (nodes, counter) in [([0, 1], 1), ([2, 3], 2), ([4, 0], 3)] {
        for node in nodes {
            let node = &cluster.nodes()[node];
            node.command::<()>(&["DEL", LOCK]).await.unwrap();
            let raised = (900_000_000_000_000_u64 + counter).to_string();
            node.set(COUNTER, &raised).await.unwrap();
        }
        let renewed = with(&urls, &["renew", &handle.to_string()]).await;
        assert!(renewed.status.success(), "{renewed:?}");
        [handle] = events(&renewed).try_into().unwrap();
        let status = until_on(&urls, 5).await;
        assert_eq!(status["token"], handle["token"]);
    }
    // Too many nodes were taken back since then.
    assert_failed(&with(&urls, &["renew", &first.to_string()]).await, 79, LOST);
    let released = with(&urls, &["release", &handle.to_string()]).await;
    assert!(released.status.success(), "{released:?}");
    assert_eq!(values(cluster.nodes(), LOCK).await, vec![None; 5]);
}

#[tokio::test]
async fn wrong_nodes_are_rejected_with_the_reason() {
    let cluster = cluster_of(3).await;
    let urls = cluster.urls();
    let two = with(&urls[..2], &["status", "r"]).await;
    assert_failed(&two, 64, "Redlock takes an odd number of nodes, 3 or 5 as a rule, not 2");
    let one = with(&urls[..1], &["run", "r", "--no-wait", "--", "true"]).await;
    assert_failed(&one, 69, "name all nodes of its cluster");
    let fair = with(&urls, &["run", "r", "--fair", "--", "true"]).await;
    assert_failed(&fair, 64, "no fair order");
    let long = with(&urls, &["run", "r", "--ttl", "11m", "--", "true"]).await;
    let too_long =
        "the ttl of 11m is longer than the cluster's longest, 10m; give --ttl 10m or less";
    assert_failed(&long, 64, too_long);
    let [handle] = events(&with(&urls, &["acquire", "r"]).await).try_into().unwrap();
    let handle = handle.to_string();
    assert_failed(&with(&urls, &["renew", &handle, "--ttl", "11m"]).await, 64, too_long);
    assert!(with(&urls, &["release", &handle]).await.status.success());
    let nowhere = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"].map(str::to_owned);
    let one_is_up = [&urls[..1], &nowhere].concat();
    let commas = ["run", "r", "--locks", &urls.join(","), "--", "true"]
        .map(|word| word.replace("redis+unix", "redis"));
    assert_failed(
        &lock_client(&commas.each_ref().map(String::as_str)).await,
        64,
        "separate the URLs of nodes by spaces",
    );
    let no_host = ["redis://a", "redis://user:secret@", "redis://c"].map(str::to_owned);
    let no_host = with(&no_host, &["status", "r"]).await;
    assert_failed(&no_host, 64, "lock-client: `redis://…` is not a usable Redis URL: ");
    assert!(!String::from_utf8_lossy(&no_host.stderr).contains("InvalidClientConfig"));
    let down = with(&one_is_up, &["run", "r", "--no-wait", "--", "true"]).await;
    assert_failed(&down, 69, "no majority of the 3 nodes has voted");
    assert_eq!(values(cluster.nodes(), LOCK).await, vec![None; 3]);
}

#[tokio::test]
async fn command_is_ended_when_the_majority_is_gone() {
    let mut cluster = cluster_of(3).await;
    let mut run = Command::new(LOCK_CLIENT);
    run.args(["run", "r", "--ttl", "5s", "--", "sleep", "60"]);
    run.env("FENCED_LOCKS", cluster.urls().join(" "));
    let running = tokio::spawn(output(run));
    crate::cluster::until_equal(cluster.nodes(), LOCK).await;
    for node in &mut cluster.nodes_mut()[1..] {
        node.process().kill().unwrap();
    }
    assert_failed(&running.await.unwrap(), 79, "the lease could not be renewed");
}

/// The node that hangs may have the lock, and then the lease has a majority.
#[tokio::test]
async fn run_reports_no_loss_that_is_not_certain() {
    for (hung, code) in [(true, 0), (false, 79)] {
        let mut cluster = cluster_of(3).await;
        let folder = tempfile::tempdir().unwrap();
        let mut command = without_terminal(LOCK_CLIENT);
        command.args(["run", "r", "--ttl", "60s", "--", "sh", "-c", "echo; read line"]);
        command.env("FENCED_LOCKS", cluster.urls().join(" "));
        let mut run = Process::spawn("run", &command, folder.path()).unwrap();
        run.line(PATIENCE).await.unwrap();
        crate::cluster::until_equal(cluster.nodes(), LOCK).await;
        let [free, second, _] = cluster.nodes_mut() else { unreachable!("there are three") };
        free.command::<()>(&["DEL", LOCK]).await.unwrap();
        if hung {
            second.process().pause().await.unwrap();
        } else {
            second.command::<()>(&["DEL", LOCK]).await.unwrap();
        }
        run.write_line("").unwrap();
        assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(code), "{:?}", run.stderr());
    }
}

#[tokio::test]
async fn help_shows_how_to_name_nodes() {
    let help = lock_client(&["run", "--help"]).await;
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("separated by spaces"), "{help}");
}
