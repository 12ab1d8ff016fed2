//! `lock-client doctor` on the nodes of a Redlock cluster.

use lock_client::{Locks, redlock::Redlock};
use serde_json::Value;
use testbed::{Proxy, Redis, proxy::ReconnectingProxy};

use super::nodes::{ALWAYS, Nodes, terms};
use crate::cluster::another_url;
use crate::command::{assert_failed, events, lock_client};
use crate::doctor::is_in_the_readme;

/// The checks, and the exit code.
struct Report {
    document: Value,
    code: i32,
}

async fn examine(urls: &[String]) -> Report {
    let output =
        lock_client(&["doctor", "--json", "--answer-timeout", "5s", "--locks", &urls.join(" ")])
            .await;
    let parsed = serde_json::from_slice(&output.stdout);
    let document = parsed.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Report { document, code: output.status.code().unwrap() }
}

impl Report {
    /// Each check that is not ok, as `NODE VERDICT NAME`; the node is `all` for all together.
    fn complaints(&self) -> Vec<String> {
        let bad = |report: &Value, node: &str| -> Vec<String> {
            let checks = report["checks"].as_array().unwrap().iter();
            assert!(checks.clone().all(is_in_the_readme), "{report}");
            let bad = checks.filter(|check| check["verdict"] != "ok");
            let word = |word: &Value| word.as_str().unwrap().to_owned();
            let line =
                |bad: &Value| format!("{node} {} {}", word(&bad["verdict"]), word(&bad["name"]));
            bad.map(line).collect()
        };
        let nodes = self.document["nodes"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let nodes = nodes.enumerate().flat_map(|(n, node)| bad(node, &n.to_string()));
        nodes.chain(bad(&self.document, "all")).collect()
    }

    #[track_caller]
    fn assert(&self, code: i32, complaints: &[&str]) {
        assert_eq!(
            (self.code, self.complaints()),
            (code, complaints.iter().map(|&line| line.to_owned()).collect()),
            "{}",
            self.document
        );
    }

    fn cure<'a>(&'a self, node: usize, name: &str) -> &'a Value {
        let checks = self.document["nodes"][node]["checks"].as_array().unwrap();
        &checks.iter().find(|check| check["name"] == name).unwrap()["cure"]
    }
}

#[tokio::test]
async fn cluster_that_loses_nothing_is_ok_and_is_left_unchanged() {
    let nodes = Nodes::cluster(&ALWAYS).await;
    let urls = nodes.urls();
    examine(&urls).await.assert(0, &[]);
    for node in &nodes.0 {
        assert_eq!(node.command::<Vec<String>>(&["KEYS", "*"]).await.unwrap(), ["fenced:node"]);
    }
    let text = lock_client(&["doctor", "--locks", &urls.join(" ")]).await;
    let text = String::from_utf8(text.stdout).unwrap();
    let member = "\nok               membership: it may vote, until it restarts\n";
    assert_eq!(text.matches(member).count(), 3, "{text}");
    assert!(
        text.contains("\nok               majority: 3 of 3 nodes may vote; locks need 2\n"),
        "{text}"
    );

    let alone = examine(&urls[..1]).await;
    alone.assert(1, &["all unfit membership", "all unfit locking"]);
    let four = [&urls[..], &urls[..1]].concat().join(" ");
    assert_failed(
        &lock_client(&["doctor", "--locks", &four]).await,
        64,
        "an odd number of nodes, 3 or 5",
    );
}

#[tokio::test]
async fn problem_of_one_node_is_a_warning_and_of_a_majority_is_not() {
    let mut nodes = Nodes::start(5, &ALWAYS).await;
    assert!(nodes.command(&["init", "--max-ttl", "500ms"]).await.status.success());
    let urls = nodes.urls();
    nodes.0[0].command::<()>(&["CONFIG", "SET", "appendfsync", "everysec"]).await.unwrap();
    examine(&urls).await.assert(0, &["0 warning appendfsync"]);
    nodes.0[0].command::<()>(&["CONFIG", "SET", "appendfsync", "always"]).await.unwrap();
    examine(&urls).await.assert(0, &[]);

    nodes.0[1].process().kill().unwrap();
    nodes.0[2].command::<()>(&["HSET", "fenced:node", "vote", "x"]).await.unwrap();
    let complaints = ["1 warning membership", "2 warning membership"];
    examine(&urls).await.assert(0, &complaints);
    nodes.0[3].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    let complaints = [&complaints[..], &["3 warning membership", "all unfit majority"]].concat();
    examine(&urls).await.assert(1, &complaints);
    let twice = [&urls[..1], &[another_url(&nodes.0[0], "same")], &urls[2..]].concat();
    let report = examine(&twice).await;
    assert!(report.complaints().contains(&"all unfit servers".to_owned()), "{}", report.document);
}

#[tokio::test]
async fn proxy_that_reconnects_by_itself_is_found_and_another_is_not() {
    let nodes = Nodes::cluster(&ALWAYS).await;
    let hides_restarts = ReconnectingProxy::start(nodes.0[0].socket()).await.unwrap();
    let shows_restarts = Proxy::start(nodes.0[1].socket()).await.unwrap();
    let urls = [hides_restarts.url(), shows_restarts.url("redis"), nodes.0[2].url()];
    examine(&urls).await.assert(4, &["0 unfit-for-fence proxy"]);
}

#[tokio::test]
async fn replica_of_a_node_is_reported_as_a_loss_of_tokens() {
    let nodes = Nodes::cluster(&[]).await;
    let replica = Redis::replica_of(&nodes.0[0]).await.unwrap();
    replica.catch_up(&nodes.0[0]).await.unwrap();
    let report = examine(&nodes.urls()).await;
    assert_eq!((report.code, &report.document["verdict"]), (4, &"unfit-for-fence".into()));
    assert!(report.complaints().contains(&"0 unfit-for-fence replicas".to_owned()));
    assert_eq!(report.complaints().iter().filter(|line| line.contains("appendonly")).count(), 3);
}

/// It votes on, and may have lost counters already.
#[tokio::test]
async fn node_that_evicts_keys_is_reported_as_a_loss_of_tokens() {
    let nodes = Nodes::cluster(&ALWAYS).await;
    let policy = ["CONFIG", "SET", "maxmemory-policy"];
    nodes.0[0].command::<()>(&[&policy[..], &["allkeys-lru"]].concat()).await.unwrap();
    let report = examine(&nodes.urls()).await;
    report.assert(4, &["0 unfit-for-fence maxmemory-policy"]);
    let cure = report.cure(0, "maxmemory-policy").to_string();
    assert!(cure.contains("restart the node, and let it be admitted"), "{cure}");
    // The control.
    nodes.0[0].command::<()>(&[&policy[..], &["noeviction"]].concat()).await.unwrap();
    examine(&nodes.urls()).await.assert(0, &[]);
}

#[tokio::test]
async fn advised_permissions_are_enough_for_locks_on_nodes() {
    let mut nodes = Nodes::cluster(&ALWAYS).await;
    let urls: Vec<_> = nodes.0.iter().map(|node| node.url_as("bob", "secret")).collect();
    let nothing = ["ACL", "SETUSER", "bob", "reset", "on", ">secret", "resetchannels"];
    for node in &nodes.0 {
        node.command::<()>(&nothing).await.unwrap();
    }
    let report = examine(&urls).await;
    assert_eq!(report.code, 1, "{}", report.document);
    // The doctor needs more permissions than a client.
    let besides = ["+time", "+exists", "+acl|whoami", "+pubsub|numsub", "+config|get", "+client"];
    let besides = [&["ACL", "SETUSER", "bob"], &besides[..]].concat();
    for (n, node) in nodes.0.iter().enumerate() {
        allow(node, report.cure(n, "membership")).await;
        node.command::<()>(&besides).await.unwrap();
    }
    examine(&urls).await.assert(0, &[]);
    // Commands that only the scripts use are tested on each node.
    nodes.0[0].command::<()>(&["ACL", "SETUSER", "bob", "-pexpire"]).await.unwrap();
    nodes.0[0].command::<()>(&["SCRIPT", "FLUSH"]).await.unwrap();
    examine(&urls).await.assert(0, &["0 unfit locking"]);

    for node in &nodes.0 {
        node.command::<()>(&nothing).await.unwrap();
        allow(node, report.cure(0, "membership")).await;
    }
    nodes.0[1].process().kill().unwrap();
    let locks = Locks::new(Redlock::open(&urls).unwrap());
    let name = "r".parse().unwrap();
    let lease = locks.acquire(&name, terms()).await.unwrap();
    lease.renew().await.unwrap();
    lease.reissue(lease.token().unwrap()).await.unwrap();
    drop(locks.wakeups(&name).await.unwrap());
    assert!(locks.status(&name).await.unwrap().held.is_some());
    let list = lock_client(&["list", "--locks", &urls.join(" ")]).await;
    assert_eq!(events(&list)[0]["name"], "r", "{list:?}");
    lease.release().await.unwrap();
}

/// Applies the commands of a cure.
async fn allow(node: &Redis, cure: &Value) {
    for command in cure["commands"].as_array().unwrap() {
        let words: Vec<_> = command.as_str().unwrap().split(' ').collect();
        node.command::<()>(&words).await.unwrap();
    }
}
