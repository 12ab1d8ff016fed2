//! `lock-client node change`.

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use testbed::process::Process;

use super::nodes::{Nodes, TTL};
use crate::command::{PATIENCE, assert_failed, code, events, lock_client, without_terminal};
use crate::programs::LOCK_CLIENT;

/// Starts nodes, the first three of them as a cluster.
async fn nodes(number: usize, max_ttl: &str) -> Nodes {
    let nodes = Nodes::start(number, &[]).await;
    let urls = urls(&nodes, &[0, 1, 2]);
    let started = lock_client(&["node", "init", "--locks", &urls, "--max-ttl", max_ttl]).await;
    assert!(started.status.success(), "{started:?}");
    nodes
}

fn urls(nodes: &Nodes, which: &[usize]) -> String {
    which.iter().map(|&node| nodes.0[node].url()).collect::<Vec<_>>().join(" ")
}

/// `lock-client node COMMAND` on some of the nodes.
async fn node(
    nodes: &Nodes,
    command: &str,
    which: &[usize],
    more: &[&str],
) -> std::process::Output {
    let urls = urls(nodes, which);
    lock_client(&[&["node", command, "--locks", &urls], more].concat()).await
}

/// The states that `node status` prints, and the cluster.
async fn status(nodes: &Nodes, which: &[usize]) -> (Vec<String>, serde_json::Value) {
    let mut lines = events(&node(nodes, "status", which, &["--json"]).await);
    let cluster = lines.pop().expect("the last line is the cluster");
    (lines.iter().map(|line| line["state"].as_str().unwrap().to_owned()).collect(), cluster)
}

#[tokio::test]
async fn member_is_replaced_and_the_old_list_is_reported() {
    let nodes = nodes(4, TTL).await;
    let [one, three] = [1, 3].map(|node| nodes.0[node].url());
    let changed = node(&nodes, "change", &[0, 1, 2], &["--remove", &one, "--add", &three]).await;
    assert!(changed.status.success(), "{changed:?}");
    let [cluster] = events(&changed).try_into().unwrap();
    assert_eq!(
        [&cluster["epoch"], &cluster["nodes"], &cluster["voting"]],
        [&json!(2), &json!(3), &json!(3)]
    );
    let again = node(&nodes, "change", &[0, 1, 2], &["--remove", &one, "--add", &three]).await;
    assert_eq!(events(&again), [cluster], "a repetition changes nothing");

    let (states, _) = status(&nodes, &[0, 2, 3]).await;
    assert_eq!(states, ["voting"; 3]);
    let (states, cluster) = status(&nodes, &[0, 1, 2]).await;
    assert_eq!(states, ["voting", "voting", "voting", "removed"]);
    assert_eq!(cluster["voting"], 3);
    let text = node(&nodes, "status", &[0, 1, 2], &[]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("in epoch 2: 3 of 3 nodes may vote"), "{text}");
    assert!(text.contains("it is no member any more"), "{text}");

    let doctor = lock_client(&["doctor", "--locks", &urls(&nodes, &[0, 1, 2])]).await;
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert!(report.contains("it is a member, and --locks does not name it"), "{report}");
    assert!(report.contains(": not examined, because --locks does not name it\n"), "{report}");
    assert!(!report.contains("a server that does not answer"), "{report}");
    assert!(report.contains("it has no vote: it is no member any more"), "{report}");
    let admitted = node(&nodes, "admit", &[0, 2, 3], &["--node", &one]).await;
    assert_failed(&admitted, 64, "is no member of the cluster");
}

#[tokio::test]
async fn held_lock_outlasts_a_replacement_and_growth() {
    let nodes = nodes(6, "4s").await;
    let folder = TempDir::new().unwrap();
    let mut run = without_terminal(LOCK_CLIENT);
    let script = "echo $FENCING_TOKEN; cat";
    run.args(["run", "r", "--ttl", "4s", "--locks", &urls(&nodes, &[0, 1, 2])]);
    run.args(["--", "sh", "-c", script]);
    let mut run = Process::spawn("run", &run, folder.path()).unwrap();
    let token = run.line(PATIENCE).await.unwrap();
    let [one, three, four, five] = [1, 3, 4, 5].map(|node| nodes.0[node].url());
    for (members, change) in [
        ([0, 1, 2], ["--remove", &one, "--add", &three].to_vec()),
        ([0, 2, 3], ["--add", &four, "--add", &five].to_vec()),
    ] {
        let changed = node(&nodes, "change", &members, &change).await;
        assert!(changed.status.success(), "{changed:?}");
        // The lease joins the new members with its renewals. The next change comes after that.
        let joined = async || {
            let urls = urls(&nodes, &members);
            let [status] = events(&lock_client(&["status", "r", "--locks", &urls]).await)
                .try_into()
                .map_err(|lines| anyhow::anyhow!("{lines:?}"))?;
            assert_eq!(status["held"], true, "{status}");
            Ok(status["nodes"] == events(&changed)[0]["nodes"])
        };
        testbed::wait::until_async(PATIENCE, joined).await.unwrap();
    }
    assert!(!run.has_ended().unwrap(), "the lease continues: {:?}", run.stderr());
    let urls = urls(&nodes, &[0, 2, 3]);
    let status = events(&lock_client(&["status", "r", "--locks", &urls]).await).remove(0);
    assert_eq!(status["held"], true, "token {token}: {status}");
    run.signal(Signal::TERM).unwrap();
}

/// Each look at the nodes waits for the answer of the removed one, and no other watcher runs.
#[tokio::test]
async fn member_that_hangs_is_replaced() {
    let mut nodes = nodes(4, TTL).await;
    nodes.0[1].process().pause().await.unwrap();
    let folder = TempDir::new().unwrap();
    let [one, three] = [1, 3].map(|node| nodes.0[node].url());
    let mut change = without_terminal(LOCK_CLIENT);
    // Long enough for a look to last longer than the pause after it.
    change.args(["node", "change", "--answer-timeout", "300ms"]);
    change.args(["--locks", &urls(&nodes, &[0, 1, 2]), "--remove", &one, "--add", &three]);
    let mut change = Process::spawn("change", &change, folder.path()).unwrap();
    let code = change.exit(PATIENCE).await.map(|status| status.code());
    assert_eq!(code.ok().flatten(), Some(0), "{:?}", change.stderr());
    assert_eq!(status(&nodes, &[0, 2, 3]).await.0, ["voting"; 3]);
}

/// The added node waits for its vote while another operator replaces it.
#[tokio::test]
async fn change_ends_when_another_operator_removes_the_added_node() {
    let nodes = nodes(5, "60s").await;
    let folder = TempDir::new().unwrap();
    let [one, three, four] = [1, 3, 4].map(|node| nodes.0[node].url());
    let start = |name: &str, members: &str, [remove, add]: [&str; 2]| {
        let mut change = without_terminal(LOCK_CLIENT);
        change.args(["node", "change", "--locks", members, "--remove", remove, "--add", add]);
        Process::spawn(name, &change, folder.path()).unwrap()
    };
    let has_printed = async |process: &Process, text: &str| {
        let printed = testbed::wait::until(PATIENCE, || Ok(process.stderr()?.contains(text))).await;
        printed.unwrap_or_else(|_| panic!("{text:?} is in {:?}", process.stderr()));
    };
    let mut first = start("first", &urls(&nodes, &[0, 1, 2]), [&one, &three]);
    has_printed(&first, "earlier locks have expired").await;
    let second = start("second", &urls(&nodes, &[0, 2, 3]), [&three, &four]);
    has_printed(&second, "the members are now").await;
    let code = first.exit(PATIENCE).await.map(|status| status.code());
    assert_eq!(code.ok().flatten(), Some(69), "{:?}", first.stderr());
    let address = three.split_once("://").unwrap().1;
    let text = format!("another operator has removed {address} again; the members are now /");
    has_printed(&first, &text).await;
}

/// The watcher may admit the new node first.
#[tokio::test]
async fn change_ends_while_a_watcher_runs() {
    let nodes = nodes(4, TTL).await;
    let folder = TempDir::new().unwrap();
    let mut watch = without_terminal(LOCK_CLIENT);
    watch.args(["node", "admit", "--watch", "--locks", &urls(&nodes, &[0, 1, 2])]);
    let watch = Process::spawn("watch", &watch, folder.path()).unwrap();
    let mut members = vec![0, 1, 2];
    for spare in [3, 0, 1, 2] {
        let [add, remove] = [spare, members[0]].map(|node| nodes.0[node].url());
        let changed = node(&nodes, "change", &members, &["--add", &add, "--remove", &remove]).await;
        assert!(changed.status.success(), "{changed:?}");
        members = [&members[1..], &[spare]].concat();
    }
    watch.signal(Signal::TERM).unwrap();
}

#[tokio::test]
async fn invalid_changes_are_usage_errors() {
    let nodes = nodes(5, TTL).await;
    let [zero, three, four] = [0, 3, 4].map(|node| nodes.0[node].url());
    let change = async |more: &[&str]| node(&nodes, "change", &[0, 1, 2], more).await;
    assert_failed(&change(&["--add", &three]).await, 64, "there would be 4 members");
    let even = ["--remove", &zero, "--add", &three, "--add", &four];
    assert_failed(&change(&even).await, 64, "there would be 4 members");
    let shrinks = "a cluster can't shrink: give one --add for each --remove";
    assert_failed(&change(&["--remove", &zero]).await, 64, shrinks);
    assert_failed(&change(&[]).await, 64, "--add <URL>");
    let one = nodes.0[1].url();
    let two_of_three = ["--remove", &zero, "--add", &three, "--remove", &one, "--add", &four];
    let one_at_a_time = "lock-client: among three members, replace one at a time\n";
    assert_failed(&change(&two_of_three).await, 64, one_at_a_time);
    assert_failed(
        &change(&["--add", "redis://127.0.0.1:1", "--remove", &zero]).await,
        69,
        "refused",
    );
    let other_database = format!("{three}?db=1");
    let other_database = ["--add", other_database.as_str(), "--remove", zero.as_str()];
    assert_failed(&change(&other_database).await, 64, "is named with database 1");
    let misspelt = ["--remove", "redis://127.0.0.1:26329", "--add", &three, "--add", &four];
    let text = "lock-client: 127.0.0.1:26329 is no member; the members are /";
    assert_failed(&change(&misspelt).await, 64, text);
    assert_eq!(status(&nodes, &[0, 1, 2]).await.1["epoch"], 1);
}

#[tokio::test]
async fn growth_prints_a_plain_line_for_each_node_that_votes() {
    let nodes = nodes(5, TTL).await;
    let added = [3, 4].map(|node| nodes.0[node].url());
    let grown = node(&nodes, "change", &[0, 1, 2], &["--add", &added[0], "--add", &added[1]]).await;
    assert!(grown.status.success(), "{grown:?}");
    let messages = String::from_utf8(grown.stderr).unwrap();
    assert!(!messages.contains(['{', '}']), "no debug format: {messages}");
    for url in added {
        let address = url.split_once("://").unwrap().1;
        assert_eq!(messages.matches(&format!("{address} votes\n")).count(), 1, "{messages}");
    }
}

#[tokio::test]
async fn change_that_was_interrupted_is_finished_by_the_watcher() {
    let nodes = nodes(5, "2s").await;
    let folder = TempDir::new().unwrap();
    let [three, four] = [3, 4].map(|node| nodes.0[node].url());
    let mut change = without_terminal(LOCK_CLIENT);
    change.args(["node", "change", "--locks", &urls(&nodes, &[0, 1, 2])]);
    change.args(["--add", &three, "--add", &four]);
    let mut change = Process::spawn("change", &change, folder.path()).unwrap();
    let waits = || Ok(change.stderr()?.contains("earlier locks have expired"));
    testbed::wait::until(PATIENCE, waits).await.unwrap();
    change.signal(Signal::TERM).unwrap();
    assert_eq!(code(change.exit(PATIENCE).await.unwrap()), 143);
    let (states, cluster) = status(&nodes, &[0, 1, 2]).await;
    assert_eq!(states, ["voting", "voting", "voting", "no-cluster", "no-cluster"]);
    assert_eq!(cluster["epoch"], 2);

    let mut watch = without_terminal(LOCK_CLIENT);
    watch.args(["node", "admit", "--watch", "--locks", &urls(&nodes, &[0, 1, 2])]);
    let mut watch = Process::spawn("watch", &watch, folder.path()).unwrap();
    for _ in 0..2 {
        watch.line(PATIENCE).await.unwrap();
    }
    watch.signal(Signal::TERM).unwrap();
    assert_eq!(watch.exit(PATIENCE).await.unwrap().code(), Some(0));
    assert_eq!(status(&nodes, &[0, 1, 2]).await.0, ["voting"; 5]);
    let all = node(&nodes, "status", &[0, 1, 2, 3, 4], &[]).await;
    assert!(all.status.success(), "{all:?}");
}

#[tokio::test]
async fn server_that_was_never_a_member_is_marked() {
    let nodes = nodes(4, TTL).await;
    let named = [0, 1, 3];
    let (states, cluster) = status(&nodes, &named).await;
    assert_eq!(states, ["voting", "voting", "voting", "not-a-member"]);
    assert_eq!(cluster["voting"], 3);
    let text = node(&nodes, "status", &named, &[]).await;
    assert!(text.status.success(), "all members vote: {text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    let address = |node: usize| nodes.0[node].url().split_once("://").unwrap().1.to_owned();
    for (node, mark) in [
        (3, "it is no member; `lock-client node change` adds it"),
        (2, "it is a member, and --locks does not name it"),
    ] {
        assert!(text.contains(&format!("\n{}: {mark}\n", address(node))), "{text}");
    }
    assert_eq!(text.matches("does not name it").count(), 1, "{text}");
    let doctor = lock_client(&["doctor", "--locks", &urls(&nodes, &named)]).await;
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert!(report.contains("it is no member; `lock-client node change` adds it"), "{report}");
    assert!(!report.contains("node init") && !report.contains("node admit"), "{report}");
}
