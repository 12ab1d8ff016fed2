//! The commands in the README of `lock-client` that start a cluster anew.

use std::{fs, process::Command};

use futures_util::future::try_join_all;
use testbed::Redis;

use super::nodes::{ALWAYS, Nodes};
use crate::{command::output, programs::LOCK_CLIENT};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");

/// The list of the nodes that restarted, and that of the others, as the loops name them.
const LISTS: [&str; 2] = ["for url in redis://n2 redis://n3;", "for url in redis://n1;"];

/// Starts a cluster of durable nodes, of which two restart with old counters. Then runs the commands,
/// with these lists of nodes: those to empty, and the others. Returns the tokens before and after.
async fn tokens_around_a_new_start([emptied, kept]: [&[usize]; 2]) -> [u64; 2] {
    let starting = (0..3).map(|_| Redis::start_on_tcp(&ALWAYS));
    let mut nodes = Nodes(try_join_all(starting).await.unwrap());
    let started = nodes.command(&["init", "--max-ttl", "1m"]).await;
    assert!(started.status.success(), "{started:?}");
    let before = nodes.token().await.unwrap();
    for node in &mut nodes.0[1..] {
        node.set("fenced:{r}:token", &(before - 1).to_string()).await.unwrap();
        node.restart().await.unwrap();
    }
    nodes.token().await.unwrap_err();
    // No client runs, and the lock is free: so there is no ttl to wait for.
    let mut commands = commands().replace("lock-client node", &format!("{LOCK_CLIENT} node"));
    let urls = nodes.urls();
    for (list, which) in LISTS.into_iter().zip([emptied, kept]) {
        assert!(commands.contains(list), "{list} is in {commands}");
        let urls: Vec<_> = which.iter().map(|&node| urls[node].as_str()).collect();
        commands = commands.replace(list, &format!("for url in {};", urls.join(" ")));
    }
    let mut shell = Command::new("sh");
    shell.args(["-euc", &commands]).env("FENCED_LOCKS", urls.join(" "));
    // The last command is `node status`, which ends with 0 if all nodes vote.
    let run = output(shell).await;
    assert!(run.status.success(), "{run:?}");
    assert_eq!(nodes.states().await, ["voting"; 3]);
    // The first node, which kept its counters, does not vote.
    [before, nodes.token_without(0).await.unwrap()]
}

/// The commands of the runbook for the loss of a majority.
fn commands() -> String {
    let readme = fs::read_to_string(README).unwrap();
    let (_, section) = readme.split_once("#### Loss of a majority").unwrap();
    let (_, commands) = section.split_once("```sh\n").unwrap();
    commands.split_once("```").unwrap().0.to_owned()
}

#[tokio::test]
async fn tokens_grow_when_a_cluster_is_started_anew_as_the_readme_says() {
    let [before, after] = tokens_around_a_new_start([&[1, 2], &[0]]).await;
    assert!(after > before, "{after} follows {before}");
}

/// The control: the nodes that restarted keep their old counters.
#[tokio::test]
async fn if_old_counters_are_not_deleted_a_token_is_issued_twice() {
    let [before, after] = tokens_around_a_new_start([&[], &[0, 1, 2]]).await;
    assert_eq!(after, before);
}
