//! Faults of one node after the other under a lease: hangs and restarts.

use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use lock_client::{AcquireError, Locks, redlock::Redlock};
use tempfile::TempDir;
use testbed::{Redis, process::Process, wait::until_async};
use tokio::time::sleep;

use super::{nodes::Nodes, watching::Watch};
use crate::{
    command::{PATIENCE, events, lock_client, without_terminal},
    lock_service::tried,
    names::name,
    programs::LOCK_CLIENT,
};

/// The longest ttl of the clusters here, and the ttl of the lease.
const TTL: &str = "4s";

/// A `lock-client run` of the lock `r`. Its command holds the lock until its stdin has a line, and
/// then enters the lock again.
struct Run {
    process: Process,
    _folder: TempDir,
    token: u64,
}

impl Run {
    async fn start(nodes: &Nodes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = without_terminal(LOCK_CLIENT);
        command.args(["run", "r", "--ttl", TTL, "--locks", &nodes.urls().join(" ")]);
        let script = r#"echo $FENCING_TOKEN; read line; "$0" run r -- sh -c 'echo $FENCING_TOKEN'"#;
        command.args(["--", "sh", "-c", script, LOCK_CLIENT]);
        let mut process = Process::spawn("run", &command, folder.path()).unwrap();
        let token = token(&mut process).await;
        Self { process, _folder: folder, token }
    }

    /// Waits until the lease stands on all nodes.
    async fn until_everywhere(&self, nodes: &Nodes) {
        let number = nodes.0.len();
        until_async(PATIENCE, async || Ok(self.nodes(nodes).await == number)).await.unwrap();
    }

    /// On how many nodes the lease stands.
    async fn nodes(&self, nodes: &Nodes) -> usize {
        let output = lock_client(&["status", "r", "--locks", &nodes.urls().join(" ")]).await;
        let [status] = events(&output).try_into().unwrap();
        assert_eq!(status["held"], true, "{status}; {}", self.process.stderr().unwrap());
        assert!(status["token"].as_u64().unwrap() >= self.token, "{status}");
        status["nodes"].as_u64().unwrap().try_into().unwrap()
    }

    /// Ends the command, and returns the exit code.
    async fn end(mut self) -> Option<i32> {
        self.process.write_line("").unwrap();
        assert_eq!(token(&mut self.process).await, self.token);
        self.process.exit(PATIENCE).await.unwrap().code()
    }
}

/// The token that the command prints.
async fn token(process: &mut Process) -> u64 {
    process.line(PATIENCE).await.unwrap().parse().unwrap()
}

/// Tries to acquire the lock again and again, which raises counters, until `ended`.
async fn rival(nodes: &[String], ended: &AtomicBool) {
    let locks = Locks::new(Redlock::open(nodes).unwrap());
    while !ended.load(Ordering::Relaxed) {
        let tried = locks.acquire(&name("r"), tried(1_000)).await;
        assert!(
            matches!(
                &tried,
                Err(AcquireError::Contended { .. } | AcquireError::Unavailable { .. })
            ),
            "the lease was lost: {tried:?}"
        );
        sleep(Duration::from_millis(20)).await;
    }
    locks.wait_for_background().await;
}

/// Each hang is longer than the ttl, so that the lock expires on the node. Without joins, the third
/// hang leaves two of five nodes.
#[tokio::test]
async fn lease_survives_nodes_that_hang_one_after_the_other() {
    let mut nodes = Nodes::cluster_of(5, TTL).await;
    let (urls, run) = (nodes.urls(), Run::start(&nodes).await);
    run.until_everywhere(&nodes).await;
    let ended = AtomicBool::new(false);
    let hanging = async {
        for node in 0..3 {
            nodes.0[node].process().pause().await.unwrap();
            sleep(Duration::from_millis(5_500)).await;
            nodes.0[node].process().resume().unwrap();
        }
        run.until_everywhere(&nodes).await;
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(hanging, rival(&urls, &ended));
    assert_eq!(run.end().await, Some(0));
}

/// The service admits each node. With five nodes, no lease has to be renewed before the next restart.
#[tokio::test]
async fn lease_survives_a_rolling_restart_of_five_nodes() {
    let mut nodes = Nodes::cluster_of(5, TTL).await;
    let (urls, run) = (nodes.urls(), Run::start(&nodes).await);
    run.until_everywhere(&nodes).await;
    let mut watch = Watch::start(&nodes);
    let ended = AtomicBool::new(false);
    let restarting = async {
        for node in 0..5 {
            nodes.0[node].restart().await.unwrap();
            watch.admission().await;
            assert_eq!(nodes.command(&["status", "--no-counters"]).await.status.code(), Some(0));
            assert!(run.nodes(&nodes).await >= 3, "after the restart of node {node}");
        }
        run.until_everywhere(&nodes).await;
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(restarting, rival(&urls, &ended));
    let issued = run.token;
    assert_eq!(run.end().await, Some(0));
    assert!(nodes.token().await.unwrap() > issued);
    assert_eq!(watch.stop().await, Some(0));
}

/// With three nodes, the lease has to take each node back before the next restart.
#[tokio::test]
async fn lease_survives_a_rolling_restart_of_three_nodes_if_it_regains_each() {
    let mut nodes = Nodes::cluster_of(3, TTL).await;
    let run = Run::start(&nodes).await;
    for node in 0..3 {
        run.until_everywhere(&nodes).await;
        nodes.0[node].restart().await.unwrap();
        assert!(nodes.admit(node).await.status.success());
    }
    run.until_everywhere(&nodes).await;
    assert_eq!(run.end().await, Some(0));
}

/// Acquires and releases another lock again and again, until `ended`. Each token is above the one before.
async fn growing_tokens(nodes: &[String], ended: &AtomicBool) {
    let locks = Locks::new(Redlock::open(nodes).unwrap());
    let mut last = None;
    while !ended.load(Ordering::Relaxed) {
        // While a term is closed, there may be no majority for a moment.
        if let Ok(lease) = locks.acquire(&name("s"), tried(2_000)).await {
            let token = lease.token().unwrap();
            assert!(Some(token) > last, "{token} after {last:?}");
            last = Some(token);
            let _ = lease.release().await;
        }
        sleep(Duration::from_millis(10)).await;
    }
    locks.wait_for_background().await;
    assert!(last.is_some());
}

/// Has an address lead to another server, as a name that has moved. The old process lives, and clients
/// keep their connections to it.
fn redirect(from: &Redis, to: &Redis) {
    std::fs::rename(from.socket(), from.socket().with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(to.socket(), from.socket()).unwrap();
}

/// All that happens to five nodes, one after the other: each restarts, three hang, and two are replaced
/// while their processes live. It runs `FENCED_RUNS` times.
#[tokio::test]
async fn lease_survives_all_maintenance() {
    let runs = env::var("FENCED_RUNS").map_or(1, |runs| runs.parse().unwrap());
    for _ in 0..runs {
        lease_survives_maintenance_once().await;
    }
}

async fn lease_survives_maintenance_once() {
    let mut nodes = Nodes::cluster_of(5, TTL).await;
    let spare = Nodes::start(2, &[]).await.0;
    let (urls, run) = (nodes.urls(), Run::start(&nodes).await);
    run.until_everywhere(&nodes).await;
    let mut watch = Watch::start(&nodes);
    let ended = AtomicBool::new(false);
    let maintaining = async {
        for node in 0..5 {
            nodes.0[node].restart().await.unwrap();
            watch.admission().await;
            run.until_everywhere(&nodes).await;
        }
        for node in 0..3 {
            nodes.0[node].process().pause().await.unwrap();
            sleep(Duration::from_millis(5_500)).await;
            nodes.0[node].process().resume().unwrap();
            run.until_everywhere(&nodes).await;
        }
        redirect(&nodes.0[0], &spare[0]);
        watch.admission().await;
        run.until_everywhere(&nodes).await;
        let (old, new) = (nodes.0[1].url(), spare[1].url());
        let replaced = nodes.command(&["admit", "--node", &new, "--instead-of", &old]).await;
        assert!(replaced.status.success(), "{replaced:?}");
        run.until_everywhere(&nodes).await;
        ended.store(true, Ordering::Relaxed);
    };
    tokio::join!(maintaining, rival(&urls, &ended), growing_tokens(&urls, &ended));
    let issued = run.token;
    assert_eq!(run.end().await, Some(0));
    assert!(nodes.token().await.unwrap() > issued);
    assert_eq!(watch.stop().await, Some(0));
}
