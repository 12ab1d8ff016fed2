//! `lock-client node admit --instead-of`.

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use testbed::process::Process;

use super::nodes::{Nodes, TTL};
use crate::cluster::another_url;
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
    let replace = ["--instead-of", &one, "--node", &three];
    for _ in 0..2 {
        let replaced = node(&nodes, "admit", &[0, 1, 2], &replace).await;
        assert!(replaced.status.success(), "{replaced:?}");
        assert_eq!(events(&replaced)[0]["state"], "voting");
    }
    let (states, cluster) = status(&nodes, &[0, 3, 2]).await;
    assert_eq!(states, ["voting"; 3]);
    assert_eq!((&cluster["term"], &cluster["voting"]), (&json!(2), &json!(3)), "it was done once");
    let (states, _) = status(&nodes, &[0, 1, 2]).await;
    assert_eq!(states, ["voting", "voting", "voting", "replaced"]);
    let text = node(&nodes, "status", &[0, 1, 2], &[]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("in term 2: 3 of 3 nodes may vote"), "{text}");
    assert!(text.contains("another process has its seat"), "{text}");

    let doctor = lock_client(&["doctor", "--locks", &urls(&nodes, &[0, 1, 2])]).await;
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert!(report.contains("it is a member, and --locks does not name it"), "{report}");
    assert!(report.contains(": not examined, because --locks does not name it\n"), "{report}");
    assert!(report.contains("it has no vote: another process has its seat"), "{report}");
    let admitted = node(&nodes, "admit", &[0, 3, 2], &["--node", &one]).await;
    assert_failed(&admitted, 64, "is no member of the cluster");
}

/// Each look at the nodes waits for the answer of the old one, and no other watcher runs.
#[tokio::test]
async fn member_that_hangs_is_replaced() {
    let mut nodes = nodes(4, TTL).await;
    nodes.0[1].process().pause().await.unwrap();
    let [one, three] = [1, 3].map(|node| nodes.0[node].url());
    let replace = ["--instead-of", &one, "--node", &three];
    let replaced = node(&nodes, "admit", &[0, 1, 2], &replace).await;
    assert!(replaced.status.success(), "{replaced:?}");
    assert_eq!(status(&nodes, &[0, 3, 2]).await.0, ["voting"; 3]);
}

/// One failure less would be withstood than before. The message must not advise to start a cluster.
#[tokio::test]
async fn voter_keeps_its_seat_while_another_member_is_down() {
    let mut nodes = Nodes::start(7, &[]).await;
    let members = [0, 1, 2, 3, 4];
    let started = node(&nodes, "init", &members, &["--max-ttl", "500ms"]).await;
    assert!(started.status.success(), "{started:?}");
    nodes.0[4].process().kill().unwrap();
    let replace = async |nodes: &Nodes, old: usize, new: usize| {
        let [old, new] = [old, new].map(|node| nodes.0[node].url());
        node(nodes, "admit", &members, &["--instead-of", &old, "--node", &new]).await
    };
    let address = |node: usize| nodes.0[node].url().split_once("://").unwrap().1.to_owned();
    let (zero, four) = (address(0), address(4));
    let rejected = replace(&nodes, 0, 5).await;
    let stays = format!("{zero} votes, and stays until {four} votes, or is replaced first");
    assert_failed(&rejected, 69, &stays);
    assert!(!String::from_utf8_lossy(&rejected.stderr).contains("node init"), "{rejected:?}");
    // The control: in this order, both are replaced.
    for (old, new) in [(4, 5), (0, 6)] {
        let replaced = replace(&nodes, old, new).await;
        assert!(replaced.status.success(), "{replaced:?}");
    }
}

#[tokio::test]
async fn replacement_that_was_interrupted_is_finished_by_the_watcher() {
    let nodes = nodes(4, "2s").await;
    let folder = TempDir::new().unwrap();
    let [one, three] = [1, 3].map(|node| nodes.0[node].url());
    let mut replace = without_terminal(LOCK_CLIENT);
    replace.args(["node", "admit", "--locks", &urls(&nodes, &[0, 1, 2])]);
    replace.args(["--instead-of", &one, "--node", &three]);
    let mut replace = Process::spawn("replace", &replace, folder.path()).unwrap();
    let waits = || Ok(replace.stderr()?.contains("earlier locks have expired"));
    testbed::wait::until(PATIENCE, waits).await.unwrap();
    replace.signal(Signal::TERM).unwrap();
    assert_eq!(code(replace.exit(PATIENCE).await.unwrap()), 143);
    let (states, cluster) = status(&nodes, &[0, 2, 3]).await;
    assert_eq!(states, ["voting", "waiting", "voting"]);
    assert_eq!(cluster["term"], 2);

    let mut watch = without_terminal(LOCK_CLIENT);
    watch.args(["node", "admit", "--watch", "--locks", &urls(&nodes, &[0, 1, 2])]);
    let mut watch = Process::spawn("watch", &watch, folder.path()).unwrap();
    watch.line(PATIENCE).await.unwrap();
    watch.signal(Signal::TERM).unwrap();
    assert_eq!(watch.exit(PATIENCE).await.unwrap().code(), Some(0));
    assert_eq!(status(&nodes, &[0, 2, 3]).await.0, ["voting"; 3]);
}

#[tokio::test]
async fn invalid_replacements_are_usage_errors() {
    let nodes = nodes(5, TTL).await;
    let [zero, three, four] = [0, 3, 4].map(|node| nodes.0[node].url());
    let admit = async |more: &[&str]| node(&nodes, "admit", &[0, 1, 2], more).await;
    assert_failed(&admit(&["--instead-of", &zero]).await, 64, "--node <URL>");
    let stranger = admit(&["--node", &three, "--instead-of", &four]).await;
    assert_failed(&stranger, 64, "is no member of the cluster, whose members are /");
    let down = admit(&["--node", "redis://127.0.0.1:1", "--instead-of", &zero]).await;
    assert_failed(&down, 69, "refused");
    let other_database = format!("{three}?db=1");
    let other_database = admit(&["--node", &other_database, "--instead-of", &zero]).await;
    assert_failed(&other_database, 64, "is named with database 1");
    assert_eq!(status(&nodes, &[0, 1, 2]).await.1["term"], 1);
}

/// It votes, or it has restarted. A success would tell the operator that the other member is replaced.
#[tokio::test]
async fn server_that_has_a_seat_takes_no_other() {
    let mut nodes = nodes(3, TTL).await;
    let same = another_url(&nodes.0[1], "same");
    let [one, two] = [1, 2].map(|node| nodes.0[node].url());
    let instead_of_one = async |nodes: &Nodes, server: &str| {
        let replace = ["--node", server, "--instead-of", &one];
        node(nodes, "admit", &[0, 1, 2], &replace).await
    };
    assert_failed(&instead_of_one(&nodes, &two).await, 64, "has a seat already");
    assert_failed(&instead_of_one(&nodes, &same).await, 64, "has a seat already");
    // Its address leads to another member. A success would say that it votes.
    let sockets = [1, 2].map(|member: usize| nodes.0[member].socket().to_owned());
    std::fs::rename(&sockets[0], sockets[0].with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(&sockets[1], &sockets[0]).unwrap();
    let admitted = node(&nodes, "admit", &[0, 1, 2], &["--node", &one]).await;
    assert_failed(&admitted, 64, "has a seat already");
    std::fs::rename(sockets[0].with_extension("aside"), &sockets[0]).unwrap();
    nodes.0[2].restart().await.unwrap();
    assert_failed(&instead_of_one(&nodes, &two).await, 64, "has a seat already");
    assert_eq!(status(&nodes, &[0, 1, 2]).await.1["term"], 1);
    // The control: in its own place.
    let own = ["--node", &two, "--instead-of", &two];
    assert!(node(&nodes, "admit", &[0, 1, 2], &own).await.status.success());
}

/// Nodes 1 and 2 have lost their data. The third server that is named belongs to another cluster, all of
/// whose members vote.
#[tokio::test]
async fn server_of_another_cluster_does_not_decide_what_the_cluster_is() {
    let nodes = nodes(7, TTL).await;
    let cluster = status(&nodes, &[0, 1, 2]).await.1["cluster"].clone();
    let other = lock_client(&["node", "init", "--locks", &urls(&nodes, &[3, 4, 5])]).await;
    assert!(other.status.success(), "{other:?}");
    for lost in [1, 2] {
        nodes.0[lost].command::<()>(&["FLUSHALL"]).await.unwrap();
    }
    for named in [[0, 1, 3], [3, 1, 0]] {
        let seen = node(&nodes, "status", &named, &["--json"]).await;
        assert_failed(&seen, 69, "no majority");
        let (states, seen) = status(&nodes, &named).await;
        assert_eq!((&seen["cluster"], &seen["voting"]), (&cluster, &json!(1)), "{states:?}");
        assert!(states.contains(&"other-cluster".to_owned()), "{states:?}");
    }
    // The last one is a member of neither.
    let (states, seen) = status(&nodes, &[0, 3, 6]).await;
    assert_eq!(states, ["other-cluster", "other-cluster", "no-cluster"]);
    assert_eq!((&seen["cluster"], &seen["voting"]), (&json!(null), &json!(0)));
    let two = nodes.0[1].url();
    let admitted = node(&nodes, "admit", &[0, 1, 3], &["--node", &two]).await;
    assert_failed(&admitted, 69, "1 of 3 members vote, and 2 must");
}

/// It only reads, and no data name another cluster.
#[tokio::test]
async fn status_of_a_cluster_needs_the_name_of_one_member() {
    let nodes = nodes(5, TTL).await;
    let (states, cluster) = status(&nodes, &[0, 3, 4]).await;
    assert_eq!(states, ["voting", "voting", "voting", "not-a-member", "not-a-member"]);
    assert_eq!(cluster["voting"], 3);
    // But a client finds no cluster with this list.
    let text = "1 of the 3 nodes in --locks are members, and a client needs 2";
    assert_failed(&node(&nodes, "status", &[0, 3, 4], &[]).await, 81, text);
    // What changes anything does not take it for the cluster that is meant.
    let three = nodes.0[3].url();
    let replace = ["--node", &three, "--instead-of", &nodes.0[1].url()];
    let rejected = node(&nodes, "admit", &[0, 3, 4], &replace).await;
    assert_failed(&rejected, 69, "fewer than a majority of the named servers belong to cluster");
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
    let advice = "it is no member; `lock-client node admit --instead-of` puts it in place of one";
    for (node, mark) in [(3, advice), (2, "it is a member, and --locks does not name it")] {
        assert!(text.contains(&format!("\n{}: {mark}\n", address(node))), "{text}");
    }
    assert_eq!(text.matches("does not name it").count(), 1, "{text}");
    let doctor = lock_client(&["doctor", "--locks", &urls(&nodes, &named)]).await;
    let report = String::from_utf8(doctor.stdout).unwrap();
    assert!(report.contains(advice), "{report}");
    assert!(!report.contains("node init"), "{report}");
}
