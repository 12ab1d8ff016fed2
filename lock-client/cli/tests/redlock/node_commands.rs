//! `lock-client node init` and `node status`.

use std::{process::Output, time::Duration};

use serde_json::Value;
use testbed::{Proxy, Redis, wait::until_async};
use tokio::time::sleep;

use super::nodes::{ALWAYS, Nodes, TTL};
use crate::cluster::another_url;
use crate::command::{PATIENCE, assert_failed, events, lock_client};

const INIT: [&str; 3] = ["init", "--max-ttl", TTL];

async fn init(urls: &[String]) -> Output {
    lock_client(&["node", "init", "--max-ttl", TTL, "--locks", &urls.join(" ")]).await
}

async fn record(node: &Redis, fields: &[&str]) {
    node.command::<()>(&[&["HSET", "fenced:node"], fields].concat()).await.unwrap();
}

async fn size(nodes: &Nodes) -> u64 {
    let mut size = 0;
    for node in &nodes.0 {
        size += node.command::<u64>(&["DBSIZE"]).await.unwrap();
    }
    size
}

#[tokio::test]
async fn cluster_needs_an_odd_number_of_different_servers() {
    let mut nodes = Nodes::start(3, &[]).await;
    let urls = nodes.urls();
    assert_failed(&init(&urls[..2]).await, 64, "an odd number of nodes, 3 or 5");
    let twice = [urls[0].clone(), urls[1].clone(), another_url(&nodes.0[0], "same")];
    assert_failed(&init(&twice).await, 64, "are one server");
    let sentinels = [&urls[..2], &["redis+sentinel://localhost/locks".to_owned()]].concat();
    assert_failed(&init(&sentinels).await, 64, "one Redis by itself");
    nodes.0[1].process().kill().unwrap();
    assert_failed(&init(&urls).await, 69, &nodes.0[1].socket().display().to_string());
    nodes.0[1].restart().await.unwrap();
    assert_eq!(size(&nodes).await, 0, "nothing was written");

    let started = events(&init(&urls).await);
    assert_eq!((&started[0]["nodes"], &started[0]["voting"]), (&3.into(), &3.into()));
    assert_eq!(events(&init(&urls).await), started, "init can be run again");
    let other = "was started with --max-ttl 2s, which can't be changed";
    assert_failed(&nodes.command(&["init"]).await, 64, other);
}

#[tokio::test]
async fn cluster_that_exists_without_all_votes_is_no_success() {
    let nodes = Nodes::start(5, &ALWAYS).await;
    assert!(nodes.command(&INIT).await.status.success());
    for (node, code) in [(0, 81), (1, 81), (2, 69)] {
        nodes.0[node].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
        let again = nodes.command(&INIT).await;
        assert_eq!(events(&again)[0]["voting"], 4 - node);
        let more = "degraded: 4 of 5|degraded: 3 of 5|no majority of the nodes".split('|');
        assert_failed(&again, code, more.collect::<Vec<_>>()[node]);
    }
}

#[tokio::test]
async fn interrupted_start_can_be_run_again() {
    // Interrupted while nodes were prepared: it starts again.
    let nodes = Nodes::cluster(&[]).await;
    let cluster = nodes.status().await[0]["cluster"].clone();
    for node in &nodes.0 {
        node.command::<()>(&["HDEL", "fenced:node", "vote"]).await.unwrap();
    }
    nodes.0[1].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    assert_eq!(nodes.states().await, ["prepared", "no-cluster", "prepared"]);
    let prepared = &nodes.status().await[0];
    assert_eq!((&prepared["cluster"], &prepared["prepared_for"]), (&Value::Null, &cluster));
    let started = nodes.command(&INIT).await;
    assert!(started.status.success(), "{started:?}");
    assert_ne!(events(&started)[0]["cluster"], cluster, "it is another cluster");
    assert_eq!(nodes.states().await, ["voting"; 3]);

    // Interrupted while nodes were admitted: it continues.
    let cluster = nodes.status().await[0]["cluster"].clone();
    nodes.0[1].command::<()>(&["HDEL", "fenced:node", "vote"]).await.unwrap();
    assert_eq!(nodes.states().await, ["voting", "waiting", "voting"]);
    assert_eq!(events(&nodes.command(&INIT).await)[0]["cluster"], cluster);
    assert_eq!(nodes.states().await, ["voting"; 3]);
}

/// A node that lost its data may have voted, also in the first term.
#[tokio::test]
async fn start_that_is_run_again_admits_no_node_that_may_have_voted() {
    let mut nodes = Nodes::cluster(&[]).await;
    for (node, lose) in [(0, "FLUSHALL"), (1, "restart")] {
        if lose == "restart" {
            nodes.0[node].restart().await.unwrap();
        } else {
            nodes.0[node].command::<()>(&[lose]).await.unwrap();
        }
        let again = nodes.command(&INIT).await;
        assert_ne!(again.status.code(), Some(0), "{again:?}");
        assert_eq!(nodes.states().await[node], "no-cluster", "{again:?}");
    }
    assert!(nodes.token().await.is_err());
}

#[tokio::test]
async fn members_of_a_cluster_are_rejected_with_the_name_of_their_cluster() {
    let mut nodes = Nodes::cluster(&[]).await;
    nodes.0[0].restart().await.unwrap();
    let rejected = nodes.command(&INIT).await;
    assert_failed(&rejected, 69, "belongs to no cluster");
    assert_failed(&rejected, 69, "and may vote");
    assert_failed(&rejected, 69, "lock-client node admit");
    // A node that came up with an old record.
    let record: Vec<String> = nodes.0[2].command(&["HGETALL", "fenced:node"]).await.unwrap();
    let record: Vec<&str> = record.iter().map(String::as_str).collect();
    nodes.0[0].command::<()>(&[&["HSET", "fenced:node"], &record[..]].concat()).await.unwrap();
    for node in [1, 2] {
        nodes.0[node].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    }
    assert_failed(&nodes.command(&INIT).await, 69, "and has no vote");
}

#[tokio::test]
async fn status_shows_the_state_of_each_node() {
    let mut nodes = Nodes::start(5, &ALWAYS).await;
    assert!(nodes.command(&INIT).await.status.success());
    for n in 0..1_200 {
        for node in [0, 1] {
            nodes.0[node].set(&format!("fenced:{{{n}}}:token"), "7").await.unwrap();
        }
    }
    nodes.0[1].set("fenced:{0}:token", "8").await.unwrap();
    nodes.0[2].command::<()>(&["CONFIG", "SET", "appendfsync", "everysec"]).await.unwrap();
    nodes.0[2].restart().await.unwrap();
    let roster: String = nodes.0[3].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    let (_, others) = roster.split_once(' ').unwrap();
    record(&nodes.0[3], &["roster", &format!("c {others}")]).await;
    nodes.0[4].process().kill().unwrap();
    let output = nodes.command(&["status", "--json"]).await;
    assert_failed(&output, 69, "no majority");
    let lines = events(&output);
    let all =
        |member: &str| -> Vec<_> { lines[..5].iter().map(|node| node[member].clone()).collect() };
    let states = ["voting", "voting", "restarted", "other-cluster", "unreachable"];
    assert_eq!(all("state"), states);
    let behind = [1.into(), 0.into(), 1_200.into(), 1_200.into(), Value::Null];
    assert_eq!(all("counters_behind"), behind);
    assert!(lines[4]["lag_ms"].is_null() && lines[4]["reason"].is_string(), "{lines:?}");
    let cluster = &lines[5];
    assert_eq!((&cluster["majority"], &cluster["voting"]), (&3.into(), &2.into()));
    assert_eq!(cluster["max_ttl_ms"], 2_000);
}

#[tokio::test]
async fn status_is_a_table_whose_exit_code_shows_how_many_nodes_vote() {
    let mut nodes = Nodes::cluster(&[]).await;
    nodes.set_counters(7).await;
    nodes.0[1].set("fenced:{r}:token", "8").await.unwrap();
    let status = async |nodes: &Nodes, options: &[&str]| {
        let output = nodes.command(&[&["status"], options].concat()).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let node = |line: &str| {
            let words: Vec<_> = line.split_whitespace().skip(1).take(2).collect();
            words.join(" ")
        };
        let columns: Vec<_> = text.lines().take(4).map(node).collect();
        (output.status.code().unwrap(), columns, text)
    };
    let (code, columns, text) = status(&nodes, &[]).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!(columns, ["STATE BEHIND", "voting 1", "voting 0", "voting 1"], "{text}");
    let explained = "\nBEHIND: the number of names whose counter on the node is below the highest";
    assert!(text.contains(explained), "{text}");
    assert!(text.contains("3 of 3 nodes may vote, locks need 2; the longest ttl is 2s\n"));

    nodes.0[0].restart().await.unwrap();
    let scans = scans(&nodes).await;
    let (code, columns, text) = status(&nodes, &["--no-counters"]).await;
    assert_eq!(code, 81, "{text}");
    assert_eq!(columns, ["STATE BEHIND", "no-cluster -", "voting -", "voting -"], "{text}");
    assert!(!text.contains(explained), "{text}");
    assert!(text.contains("lock-client node admit"), "it says what to do: {text}");
    assert_eq!(self::scans(&nodes).await, scans, "it reads no counters");
    status(&nodes, &[]).await;
    assert_ne!(self::scans(&nodes).await, scans, "the control: with them, it does");

    nodes.0[1].restart().await.unwrap();
    assert_eq!(status(&nodes, &["--no-counters"]).await.0, 69);
}

/// They answer, have the right record, and grant nothing.
#[tokio::test]
async fn status_tries_a_vote_on_each_node() {
    let nodes = Nodes::cluster(&[]).await;
    let set = async |node: usize, setting: &str, value: &str| {
        nodes.0[node].command::<()>(&["CONFIG", "SET", setting, value]).await.unwrap();
    };
    set(0, "maxmemory", "1").await;
    let degraded = nodes.command(&["status", "--json"]).await;
    assert_failed(&degraded, 81, "degraded: 2 of 3 nodes may vote");
    assert_eq!(events(&degraded)[0]["state"], "rejecting");
    set(1, "min-replicas-to-write", "1").await;
    assert_failed(&nodes.command(&["status"]).await, 69, "no majority");
    assert_eq!(nodes.states().await, ["rejecting", "rejecting", "voting"]);
    set(0, "maxmemory", "0").await;
    set(1, "min-replicas-to-write", "0").await;
    assert_eq!(nodes.states().await, ["voting"; 3]);
    assert_eq!(size(&nodes).await, 3, "only the records are left");
}

/// It loses its vote, or hangs in a script, after its record was read.
#[tokio::test]
async fn only_a_vote_proves_that_a_node_votes() {
    for (step, state, reason) in
        [("HDEL", "waiting", "it was not admitted yet"), ("EVAL", "rejecting", "BUSY")]
    {
        let nodes = Nodes::cluster(&[]).await;
        let (proxy, mut urls) = (Proxy::start(nodes.0[0].socket()).await.unwrap(), nodes.urls());
        urls[0] = proxy.url("redis");
        let urls = urls.join(" ");
        let held = proxy.hold("fenced:{/trial}");
        let status = ["node", "status", "--json", "--no-counters", "--locks", &urls];
        let change = async {
            let request = held.caught().await.unwrap();
            if step == "HDEL" {
                nodes.0[0].command::<()>(&["HDEL", "fenced:node", "vote"]).await.unwrap();
                request.deliver();
            } else {
                let threshold = ["CONFIG", "SET", "busy-reply-threshold", "1"];
                nodes.0[0].command::<()>(&threshold).await.unwrap();
                let busy = async || {
                    let _ = nodes.0[0].command::<()>(&["EVAL", "while true do end", "0"]).await;
                };
                let kill = async {
                    let busy = async || Ok(nodes.0[0].command::<()>(&["PING"]).await.is_err());
                    until_async(PATIENCE, busy).await.unwrap();
                    request.deliver();
                    sleep(Duration::from_millis(300)).await;
                    nodes.0[0].command::<()>(&["SCRIPT", "KILL"]).await.unwrap();
                };
                tokio::join!(busy(), kill);
            }
        };
        let (seen, ()) = tokio::join!(lock_client(&status), change);
        assert_failed(&seen, 81, "2 of 3 nodes may vote");
        let first = &events(&seen)[0];
        assert_eq!(first["state"], state, "{first}");
        assert!(first["reason"].as_str().unwrap().contains(reason), "{first}");
    }
}

/// A user that may read all, and try no vote, learns that it was not tried. So does one that may run the
/// script, and not all commands in it.
#[tokio::test]
async fn vote_that_must_not_be_tried_is_reported() {
    let nodes = Nodes::cluster(&[]).await;
    let urls: Vec<_> = nodes.0.iter().map(|node| node.url_as("eyes", "secret")).collect();
    for more in [&[][..], &["+eval"], &["+eval", "+hget"]] {
        for node in &nodes.0 {
            let rules = "ACL SETUSER eyes reset on >secret ~fenced:* +info +hmget +scan +mget";
            let rules: Vec<_> = rules.split(' ').chain(more.iter().copied()).collect();
            node.command::<()>(&rules).await.unwrap();
        }
        let seen = lock_client(&["node", "status", "--json", "--locks", &urls.join(" ")]).await;
        assert!(seen.status.success(), "{seen:?}");
        let first = &events(&seen)[0];
        assert_eq!(first["state"], "voting");
        assert!(first["reason"].as_str().unwrap().starts_with("no vote was tried: "), "{first}");
    }
}

/// A later version may have written it, or somebody else. Equal texts are compared, so it never matches.
#[tokio::test]
async fn roster_that_cannot_be_read_is_reported() {
    let nodes = Nodes::cluster(&[]).await;
    record(&nodes.0[0], &["roster", "{}"]).await;
    let seen = nodes.command(&["status", "--json", "--no-counters"]).await;
    assert_failed(&seen, 81, "2 of 3 nodes may vote");
    assert_eq!(events(&seen)[0]["state"], "unreadable");
    let reason = events(&seen)[0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("a roster that this version can't read"), "{reason}");
    let text = "a roster that this version can't read";
    assert_failed(&nodes.admit(0).await, 69, text);
    let again = ["init", "--again", &nodes.cluster_of_node(1).await, "--max-ttl", TTL];
    assert_failed(&nodes.command(&again).await, 69, text);
    assert_eq!(
        nodes.0[0].command::<String>(&["HGET", "fenced:node", "roster"]).await.unwrap(),
        "{}"
    );
}

/// How often the nodes have been scanned.
async fn scans(nodes: &Nodes) -> usize {
    let mut scans = 0;
    for node in &nodes.0 {
        let stats: String = node.command(&["INFO", "commandstats"]).await.unwrap();
        let line = stats.lines().find(|line| line.starts_with("cmdstat_scan:calls="));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<usize>().ok());
        scans += calls.unwrap_or(0);
    }
    scans
}

#[tokio::test]
async fn operator_needs_few_permissions() {
    let nodes = Nodes::start(3, &[]).await;
    let rules = "on >secret ~fenced:* +eval +info +hget +hmget +hset \
                 +hdel +del +get +incr +set +pttl +scan +mget +keys";
    for node in &nodes.0 {
        let words = ["ACL SETUSER ops reset", rules].join(" ");
        node.command::<()>(&words.split_whitespace().collect::<Vec<_>>()).await.unwrap();
    }
    let urls: Vec<_> = nodes.0.iter().map(|node| node.url_as("ops", "secret")).collect();
    let done = init(&urls).await;
    assert!(done.status.success(), "{done:?}");
    nodes.set_counters(7).await;
    // As after a loss of data.
    nodes.0[0].command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    nodes.0[0].command::<()>(&["DEL", "fenced:{r}:token"]).await.unwrap();
    let urls = urls.join(" ");
    let admit = ["node", "admit", "--locks", &urls, "--node", &nodes.0[0].url()];
    let done = lock_client(&admit).await;
    assert!(done.status.success(), "{done:?}");
    let done = lock_client(&["node", "status", "--locks", &urls]).await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!(nodes.counter(0).await, Some(7));
}

#[tokio::test]
async fn concurrent_starts_leave_nodes_that_can_be_started_again() {
    let nodes = Nodes::start(3, &[]).await;
    for round in 0..12 {
        let init = ["init", "--max-ttl", TTL];
        let _ = tokio::join!(nodes.command(&init), nodes.command(&init), nodes.command(&init));
        let again = nodes.command(&init).await;
        assert!(again.status.success(), "in round {round}: {again:?}");
        assert_eq!(nodes.states().await, ["voting"; 3], "in round {round}");
        for node in &nodes.0 {
            node.command::<()>(&["FLUSHALL"]).await.unwrap();
        }
    }
}
