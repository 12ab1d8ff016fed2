//! The service that admits the nodes that restart: `node admit --watch`.

use std::{
    fs,
    time::{Duration, Instant},
};

use lock_client::{Locks, redlock::Redlock};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testbed::{
    Proxy, Redis,
    process::Process,
    wait::{until, until_async},
};
use tokio::time::sleep;

use super::nodes::{ALWAYS, Nodes, terms};
use crate::command::{PATIENCE, assert_failed, code, lock_client, without_terminal};
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
        Self::start_at(&nodes.urls())
    }

    fn start_at(urls: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = without_terminal(LOCK_CLIENT);
        command.args(["node", "admit", "--watch", "--locks", &urls.join(" ")]);
        command.env("RUST_LOG", "trace");
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
    pub(super) async fn stop(self) -> Option<i32> {
        self.end(Signal::TERM).await
    }

    /// Ends the service by a signal, and returns the exit code.
    async fn end(mut self, signal: Signal) -> Option<i32> {
        self.process.signal(signal).unwrap();
        Some(code(self.process.exit(PATIENCE).await.unwrap()))
    }
}

#[tokio::test]
async fn restarted_node_is_back_after_the_longest_ttl() {
    let mut nodes = Nodes::cluster_granting(MAX_TTL, &ALWAYS).await;
    nodes.set_counters(HIGH).await;
    let mut watch = Watch::start(&nodes);
    let restarted = Instant::now();
    nodes.0[0].restart().await.unwrap();
    let restarts =
        "redis.sock has another process. It votes in 3.0s, when all earlier locks have expired.";
    watch.reported(restarts, 1).await;
    assert_eq!(nodes.states().await, ["waiting", "voting", "voting"]);
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

/// Those of a foreign authority are on disk for a while. A new connection has them, and is rejected.
#[tokio::test]
async fn certificates_are_read_again_for_each_new_connection() {
    let (mut nodes, folder) = (Vec::new(), tempfile::tempdir().unwrap());
    for _ in 0..3 {
        nodes.push(Redis::start_mutual_tls(&[]).await.unwrap());
    }
    let foreign = Redis::start_mutual_tls(&[]).await.unwrap();
    let copy = |node: usize, from: &Redis| {
        let (certificate, key) = from.client_certificate().unwrap();
        [from.ca_file().unwrap(), certificate, key].map(|file| {
            let copied = format!("{node}-{}", file.file_name().unwrap().display());
            let copied = folder.path().join(copied);
            fs::copy(file, &copied).unwrap();
            copied.display().to_string()
        })
    };
    let url = |(number, node): (usize, &Redis)| {
        let [ca, certificate, key] = copy(number, node);
        format!("{}?tls-ca={ca}&tls-cert={certificate}&tls-key={key}", node.url())
    };
    let urls: Vec<_> = nodes.iter().enumerate().map(url).collect();
    let started =
        lock_client(&["node", "init", "--max-ttl", MAX_TTL, "--locks", &urls.join(" ")]).await;
    assert!(started.status.success(), "{started:?}");
    let mut watch = Watch::start_at(&urls);
    copy(0, &foreign);
    nodes[0].restart().await.unwrap();
    // With the earlier ones, it would be admitted after the longest ttl.
    watch.process.line(3 * WAIT).await.unwrap_err();
    copy(0, &nodes[0]);
    assert_eq!(watch.admission().await["state"], "voting");
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn another_restart_during_the_wait_starts_over() {
    // The node must restart before the end of its first wait, on a busy machine, too.
    let mut nodes = Nodes::cluster_granting("6s", &[]).await;
    let mut watch = Watch::start(&nodes);
    nodes.0[0].restart().await.unwrap();
    watch.reported("earlier locks have expired", 1).await;
    // Without a new wait, the admission would come this much earlier.
    sleep(Duration::from_millis(500)).await;
    let restarted = Instant::now();
    nodes.0[0].restart().await.unwrap();
    watch.reported("earlier locks have expired", 2).await;
    watch.admission().await;
    assert!(restarted.elapsed() >= Duration::from_millis(6_062), "after {:?}", restarted.elapsed());
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn too_few_voters_need_a_person_and_the_service_continues() {
    let mut nodes = Nodes::cluster_granting("500ms", &[]).await;
    let mut watch = Watch::start(&nodes);
    // Both are down before one is back: otherwise the service prepares the first.
    for node in [0, 1] {
        nodes.0[node].process().kill().unwrap();
    }
    for node in [0, 1] {
        nodes.0[node].restart().await.unwrap();
    }
    watch.reported("a person must decide", 1).await;
    // Several times the wait.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.states().await, ["no-cluster", "no-cluster", "voting"]);
    // The person decides to start anew, as the message says.
    let again = ["init", "--again", &nodes.cluster_of_node(2).await, "--max-ttl", "500ms"];
    let again = nodes.command(&again).await;
    assert!(again.status.success(), "{again:?}");
    watch.reported("a majority of the nodes votes again", 1).await;
    nodes.0[0].restart().await.unwrap();
    watch.admission().await;
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(watch.stop().await, Some(0));
}

/// A start would take the votes of one that runs.
#[tokio::test]
async fn servers_of_two_clusters_are_not_to_be_started_again() {
    let (one, other) = (Nodes::cluster(&[]).await, Nodes::cluster(&[]).await);
    let none = Nodes::start(1, &[]).await;
    let urls = [&one, &other, &none].map(|nodes| nodes.urls().swap_remove(0));
    let watch = Watch::start_at(&urls);
    watch.reported("no node can be admitted: these servers belong to 2 clusters", 1).await;
    let messages = watch.process.stderr().unwrap();
    assert!(!messages.contains("--again"), "{messages}");
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn node_that_loses_its_data_after_its_admission_waits_again() {
    let mut nodes = Nodes::cluster_granting(MAX_TTL, &[]).await;
    let mut watch = Watch::start(&nodes);
    nodes.0[0].restart().await.unwrap();
    watch.admission().await;
    let lost = Instant::now();
    nodes.0[0].command::<()>(&["FLUSHALL"]).await.unwrap();
    watch.reported("has another process. It votes in 3.0s, when all earlier locks", 2).await;
    watch.admission().await;
    assert!(lost.elapsed() >= WAIT, "after {:?}", lost.elapsed());
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn nodes_that_hang_and_come_back_are_the_same_processes() {
    let mut nodes = Nodes::cluster_granting(MAX_TTL, &[]).await;
    let mut watch = Watch::start(&nodes);
    nodes.0[0].restart().await.unwrap();
    watch.reported("earlier locks have expired", 1).await;
    // A candidate and a voter.
    for node in [0, 1] {
        nodes.0[node].process().pause().await.unwrap();
    }
    watch.reported("a person must decide", 1).await;
    for node in [0, 1] {
        nodes.0[node].process().resume().unwrap();
    }
    watch.reported("a majority of the nodes votes again", 1).await;
    watch.admission().await;
    assert_eq!(nodes.states().await, ["voting"; 3]);
    watch.reported("earlier locks have expired", 1).await;
    let messages = watch.process.stderr().unwrap();
    assert_eq!(messages.matches("earlier locks have expired").count(), 1, "{messages}");
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn node_that_cannot_be_admitted_is_reported_once() {
    let mut nodes = Nodes::cluster_granting("500ms", &[]).await;
    let roster: String = nodes.0[0].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    let foreign = format!("c {}", roster.split_once(' ').unwrap().1);
    nodes.0[0].command::<()>(&["HSET", "fenced:node", "roster", &foreign]).await.unwrap();
    let mut watch = Watch::start(&nodes);
    watch.reported("is left alone: it belongs to another cluster", 1).await;
    nodes.0[0].process().kill().unwrap();
    // A look during which it was killed has another reason.
    watch.reported("Connection refused", 1).await;
    let reports = || watch.process.stderr().unwrap().matches("is left alone: ").count();
    let reported = reports();
    // Several looks later, it is the same reason.
    sleep(Duration::from_millis(2_500)).await;
    assert_eq!(reports(), reported, "{:?}", watch.process.stderr());
    nodes.0[0].restart().await.unwrap();
    watch.reported("redis.sock answers again", 1).await;
    watch.admission().await;
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn several_services_may_run_at_once() {
    let mut nodes = Nodes::cluster(&[]).await;
    nodes.set_counters(HIGH).await;
    let watches = [Watch::start(&nodes), Watch::start(&nodes)];
    let mut last = HIGH;
    for node in [0, 1, 2, 0] {
        nodes.0[node].restart().await.unwrap();
        let votes = async || Ok(nodes.states().await == ["voting"; 3]);
        until_async(PATIENCE, votes).await.unwrap();
        let token = nodes.token().await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    for watch in watches {
        assert_eq!(watch.stop().await, Some(0));
    }
}

/// The service that stands by knows no wait of the other. It must not say that nobody admits the node.
#[tokio::test]
async fn service_that_stands_by_says_so_and_nothing_else() {
    let mut nodes = Nodes::cluster_granting(MAX_TTL, &[]).await;
    let mut works = Watch::start(&nodes);
    let has_lock =
        async || Ok(nodes.0[0].command::<bool>(&["EXISTS", "fenced:{/watcher}:lock"]).await?);
    until_async(PATIENCE, has_lock).await.unwrap();
    let mut stands_by = Watch::start(&nodes);
    stands_by.reported("another watcher works, and this one stands by", 1).await;
    // Each restart disturbs the lock of the other one for a moment.
    for node in [0, 1, 2] {
        nodes.0[node].restart().await.unwrap();
        works.admission().await;
    }
    let messages = stands_by.process.stderr().unwrap();
    assert!(!messages.contains("is left alone"), "{messages}");
    assert!(!messages.contains("has another process"), "{messages}");
    assert_eq!(messages.matches("stands by").count(), 1, "{messages}");
    // The other one goes on when it has ended.
    assert_eq!(works.stop().await, Some(0));
    nodes.0[1].restart().await.unwrap();
    stands_by.admission().await;
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(stands_by.stop().await, Some(0));
}

/// Two members are replaced while the service runs, and their old servers are gone. One of the three
/// servers that it names is left.
#[tokio::test]
async fn service_with_an_old_list_still_admits_nodes() {
    let mut nodes = Nodes::cluster_granting("500ms", &[]).await;
    let mut spare = Nodes::start(2, &[]).await.0;
    let watch = Watch::start(&nodes);
    for (old, new) in [(0, 0), (1, 1)] {
        let replace = ["admit", "--node", &spare[new].url(), "--instead-of", &nodes.0[old].url()];
        let replaced = nodes.command(&replace).await;
        assert!(replaced.status.success(), "{replaced:?}");
    }
    for old in [0, 1] {
        nodes.0[old].process().kill().unwrap();
    }
    spare[0].restart().await.unwrap();
    let members = [spare[0].url(), spare[1].url(), nodes.0[2].url()].join(" ");
    let votes = async || {
        let status = ["node", "status", "--no-counters", "--locks", &members];
        Ok(lock_client(&status).await.status.success())
    };
    until_async(PATIENCE, votes).await.unwrap();
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn lock_of_a_user_keeps_no_service_from_its_work() {
    let mut nodes = Nodes::cluster(&[]).await;
    let locks = Locks::new(Redlock::open(nodes.urls()).unwrap());
    let lease = locks.acquire(&"lock-client/watcher".parse().unwrap(), terms()).await.unwrap();
    let mut watch = Watch::start(&nodes);
    nodes.0[0].restart().await.unwrap();
    watch.admission().await;
    assert!(lease.token().is_ok(), "the lock was held throughout");
    assert_eq!(watch.stop().await, Some(0));
}

#[tokio::test]
async fn signal_ends_the_service_at_once_while_a_node_hangs() {
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130)] {
        let mut nodes = Nodes::cluster_granting("60s", &[]).await;
        let (proxy, mut urls) = (Proxy::start(nodes.0[1].socket()).await.unwrap(), nodes.urls());
        urls[1] = proxy.url("redis");
        let watch = Watch::start_at(&urls);
        nodes.0[0].restart().await.unwrap();
        watch.reported("earlier locks have expired", 1).await;
        // It waits for the answer of this node.
        let _request = proxy.hold("roster").caught().await.unwrap();
        assert_eq!(watch.end(signal).await, Some(code));
        assert_eq!(nodes.fields(0).await, ["roster"]);
    }
}

#[tokio::test]
async fn service_prints_no_password() {
    let mut nodes = Nodes::start(3, &["--requirepass", "opensesame"]).await;
    let urls = |password| -> Vec<_> {
        nodes.0.iter().map(|node| node.url_as("default", password)).collect()
    };
    let (right, wrong) = (urls("opensesame"), urls("shibboleth"));
    let init = ["node", "init", "--max-ttl", "500ms", "--locks", &right.join(" ")];
    assert!(lock_client(&init).await.status.success());
    let mut watch = Watch::start_at(&right);
    nodes.0[0].restart().await.unwrap();
    let admitted = watch.admission().await.to_string();
    let rejected = Watch::start_at(&wrong);
    rejected.reported("no node can be admitted", 1).await;
    for text in [admitted, watch.process.stderr().unwrap(), rejected.process.stderr().unwrap()] {
        assert!(text.contains("redis.sock"), "it names the nodes: {text}");
        assert!(!text.contains("opensesame") && !text.contains("shibboleth"), "{text}");
    }
}

#[tokio::test]
async fn watch_takes_the_list_of_nodes_alone() {
    let nodes = Nodes::start(3, &[]).await;
    let url = nodes.0[0].url();
    let both = nodes.command(&["admit", "--watch", "--node", &url]).await;
    assert_failed(&both, 64, "cannot be used with");
    assert_failed(&nodes.command(&["admit"]).await, 64, "give --node URL or --watch");
}
