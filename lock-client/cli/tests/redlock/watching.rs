//! The service that admits the nodes that restart: `node admit --watch`.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testbed::{process::Process, wait::until};
use tokio::time::sleep;

use super::nodes::{ALWAYS, Nodes};
use crate::command::{PATIENCE, assert_failed, without_terminal};
use crate::programs::LOCK_CLIENT;

const HIGH: u64 = 900_000_000_000_000;
const MAX_TTL: &str = "3s";
/// The longest ttl, 1 % and 2 ms.
const WAIT: Duration = Duration::from_millis(3_032);

/// A running service.
pub(super) struct Watch {
    process: Process,
    _folder: TempDir,
}

impl Watch {
    pub(super) fn start(nodes: &Nodes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = without_terminal(LOCK_CLIENT);
        command.args(["node", "admit", "--watch", "--redis", &nodes.urls().join(" ")]);
        Self { process: Process::spawn("watch", &command, folder.path()).unwrap(), _folder: folder }
    }

    /// Waits until the service has reported this so many times.
    async fn reported(&self, text: &str, times: usize) {
        let found = || Ok(self.process.stderr()?.matches(text).count() >= times);
        let waited = until(PATIENCE, found).await;
        waited.unwrap_or_else(|_| panic!("{text:?} is in {:?}", self.process.stderr()));
    }

    /// Waits for the next admission.
    pub(super) async fn admission(&mut self) -> Value {
        serde_json::from_str(&self.process.line(PATIENCE).await.unwrap()).unwrap()
    }

    /// Ends the service as a service manager does, and returns the exit code.
    pub(super) async fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::TERM).unwrap();
        self.process.exit(PATIENCE).await.unwrap().code()
    }
}

#[tokio::test]
async fn restarted_node_is_back_after_the_longest_ttl() {
    let mut nodes = Nodes::cluster_granting(MAX_TTL, &ALWAYS).await;
    nodes.set_counters(HIGH).await;
    let mut watch = Watch::start(&nodes);
    let restarted = Instant::now();
    nodes.0[0].restart().await.unwrap();
    watch.reported("has restarted: waiting", 1).await;
    assert_eq!(nodes.states().await, ["restarted", "voting", "voting"]);
    let token = nodes.token().await.unwrap();

    let admitted = watch.admission().await;
    assert!(restarted.elapsed() >= WAIT, "after {:?}", restarted.elapsed());
    assert_eq!(admitted["node"].as_str().map(|node| nodes.0[0].url().contains(node)), Some(true));
    assert_eq!((&admitted["state"], &admitted["counters_raised"]), (&"voting".into(), &1.into()));
    assert_eq!(nodes.counter(0).await, Some(token));
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(nodes.token_without(1).await, Ok(token + 1), "it has the token of the others");
    // The next node, which comes up with nothing.
    nodes.0[1].command::<()>(&["FLUSHALL"]).await.unwrap();
    nodes.0[1].restart().await.unwrap();
    watch.admission().await;
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn another_restart_during_the_wait_starts_over() {
    let mut nodes = Nodes::cluster_granting(MAX_TTL, &[]).await;
    let mut watch = Watch::start(&nodes);
    nodes.0[0].restart().await.unwrap();
    watch.reported("has restarted: waiting", 1).await;
    // Without a new wait, the admission would come this much earlier.
    sleep(Duration::from_secs(1)).await;
    let restarted = Instant::now();
    nodes.0[0].restart().await.unwrap();
    watch.reported("has restarted: waiting", 2).await;
    watch.admission().await;
    assert!(restarted.elapsed() >= WAIT, "after {:?}", restarted.elapsed());
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn too_few_voters_need_a_person_and_the_service_continues() {
    let mut nodes = Nodes::cluster_granting("500ms", &[]).await;
    let mut watch = Watch::start(&nodes);
    for node in [0, 1] {
        nodes.0[node].restart().await.unwrap();
    }
    watch.reported("a person must decide", 1).await;
    // Several times the wait.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.states().await, ["no-cluster", "no-cluster", "voting"]);
    // The person decides to start anew, as the message says.
    nodes.0[2].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    assert!(nodes.command(&["init", "--max-ttl", "500ms"]).await.status.success());
    watch.reported("a majority of the nodes votes again", 1).await;
    nodes.0[0].restart().await.unwrap();
    watch.admission().await;
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn watch_takes_the_list_of_nodes_alone() {
    let nodes = Nodes::start(3, &[]).await;
    let url = nodes.0[0].url();
    let both = nodes.command(&["admit", "--watch", "--node", &url]).await;
    assert_failed(&both, 64, "cannot be used with");
    assert_failed(&nodes.command(&["admit"]).await, 64, "--node <URL>");
}
