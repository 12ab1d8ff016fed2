//! `lock-client node init --again`: a start of a cluster that has lost its majority.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use testbed::{Redis, wait::until_async};

use super::{
    new_start::{HIGH, init, leave_prepared, leave_prepared_again, retired, seven, to_be_retired},
    nodes::{ALWAYS, Nodes},
};
use crate::command::{PATIENCE, assert_failed, events, lock_client};

async fn pause(nodes: &mut [Redis]) {
    for node in nodes {
        node.process().pause().await.unwrap();
    }
}

/// A majority comes back after a start was interrupted that could not see it.
#[tokio::test]
async fn start_again_sees_a_majority_that_came_back_before_its_repeat() {
    let mut nodes = Nodes::start(5, &ALWAYS).await;
    let urls = nodes.urls();
    assert!(init(&urls[..3], &[]).await.status.success());
    let (vote, cluster) = (to_be_retired(&nodes.0[0]).await, nodes.cluster_of_node(0).await);
    let lost = ["--again", &cluster];
    let again = [urls[0].clone(), urls[3].clone(), urls[4].clone()];
    pause(&mut nodes.0[1..3]).await;
    assert!(init(&again, &lost).await.status.success());
    leave_prepared(&nodes.0[3..]).await;
    leave_prepared_again(&nodes.0[0], &vote).await;
    nodes.0[1..3].iter_mut().for_each(|node| node.process().resume().unwrap());

    let majority = "a majority of the nodes may vote";
    assert_failed(&init(&again, &lost).await, 64, majority);
    // What was prepared hides it no more if it restarts.
    for prepared in &mut nodes.0[3..] {
        prepared.restart().await.unwrap();
    }
    assert_failed(&init(&again, &lost).await, 64, majority);
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["prepared", "voting", "voting"]);
    // The control: without the majority, it starts.
    pause(&mut nodes.0[1..3]).await;
    let started = init(&again, &lost).await;
    assert!(started.status.success(), "{started:?}");
}

/// Two of the named servers are prepared for a cluster that never was, or that others vote in.
#[tokio::test]
async fn prepared_servers_do_not_hide_a_cluster_that_runs() {
    for members in [3..6, 3..8] {
        let nodes = Nodes::start(8, &[]).await;
        let urls = nodes.urls();
        assert!(init(&urls[..3], &[]).await.status.success());
        assert!(init(&urls[members.clone()], &[]).await.status.success());
        let prepared = if members.len() == 3 { members } else { 3..5 };
        leave_prepared(&nodes.0[prepared]).await;
        let again = [urls[0].clone(), urls[3].clone(), urls[4].clone()];
        let cluster = nodes.cluster_of_node(0).await;
        let rejected = init(&again, &["--again", &cluster]).await;
        assert_failed(&rejected, 64, "a majority of the nodes may vote");
        assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["voting"; 3]);
    }
}

/// A cluster of nodes 0 to 2, of which two restarted and one is gone, and one of nodes 3 to 5, which runs.
/// Nodes 6 and 7 belong to none.
async fn two_clusters() -> Nodes {
    let mut nodes = Nodes::start(8, &ALWAYS).await;
    for cluster in [0..3, 3..6] {
        assert!(init(&nodes.urls()[cluster], &[]).await.status.success());
    }
    for restarted in [0, 1] {
        nodes.0[restarted].restart().await.unwrap();
    }
    nodes.0[2].process().kill().unwrap();
    nodes
}

#[tokio::test]
async fn start_again_takes_no_vote_in_a_cluster_that_runs() {
    let nodes = two_clusters().await;
    let urls = nodes.urls();
    let [one, other] = [nodes.cluster_of_node(0).await, nodes.cluster_of_node(3).await];
    let lost = ["--again", &one];
    for second in [1, 6] {
        let again = [urls[0].clone(), urls[second].clone(), urls[3].clone()];
        assert_failed(&init(&again, &lost).await, 69, "and may vote");
        assert_failed(
            &init(&again, &["--again", &other]).await,
            64,
            "a majority of the nodes may vote",
        );
        assert_failed(
            &init(&again, &["--again", "none"]).await,
            64,
            "no server has data of cluster none",
        );
        assert_eq!(nodes.states_of(&[3, 4, 5]).await, ["voting"; 3]);
    }
    // The control: without the stranger, it starts.
    let again = [urls[0].clone(), urls[1].clone(), urls[6].clone()];
    let started = init(&again, &lost).await;
    assert!(started.status.success(), "{started:?}");
}

/// The servers in place of the lost ones have other addresses.
#[tokio::test]
async fn start_again_waits_for_the_longest_ttl_in_the_data() {
    let mut nodes = Nodes::start(5, &ALWAYS).await;
    let urls = nodes.urls();
    let three = urls[..3].join(" ");
    let longer = ["node", "init", "--max-ttl", "4s", "--locks", &three];
    assert!(lock_client(&longer).await.status.success());
    let lost = ["--again", &nodes.cluster_of_node(0).await];
    nodes.0[0].restart().await.unwrap();
    for lost in [1, 2] {
        nodes.0[lost].process().kill().unwrap();
    }
    let again = [urls[0].clone(), urls[3].clone(), urls[4].clone()];
    let asked = Instant::now();
    let started = init(&again, &lost).await;
    assert!(started.status.success(), "{started:?}");
    assert!(asked.elapsed() >= Duration::from_millis(4_042), "{:?}", asked.elapsed());
}

/// One member is named, and two servers that are none. The majority that votes is not.
#[tokio::test]
async fn cluster_of_which_a_minority_is_named_is_not_started_again() {
    let nodes = seven().await;
    let urls = nodes.urls();
    let again = [urls[1].clone(), urls[3].clone(), urls[4].clone()];
    let lost = ["--again", &nodes.cluster_of_node(1).await];
    assert_failed(&init(&again, &lost).await, 64, "a majority of the nodes may vote");
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["voting"; 3]);
}

/// Starts a cluster of durable nodes, of which two restart with old counters.
async fn without_majority() -> (Nodes, u64) {
    let starting = (0..3).map(|_| Redis::start_on_tcp(&ALWAYS));
    let mut nodes = Nodes(try_join_all(starting).await.unwrap());
    assert!(init(&nodes.urls(), &[]).await.status.success());
    let before = nodes.token().await.unwrap();
    for node in &mut nodes.0[1..] {
        node.set("fenced:{r}:token", &(before - 1).to_string()).await.unwrap();
        node.restart().await.unwrap();
    }
    nodes.token().await.unwrap_err();
    (nodes, before)
}

#[tokio::test]
async fn tokens_grow_when_a_cluster_is_started_again() {
    let (nodes, before) = without_majority().await;
    let asked = Instant::now();
    let lost = ["--again", &nodes.cluster_of_node(0).await];
    let started = init(&nodes.urls(), &lost).await;
    assert!(started.status.success(), "{started:?}");
    assert!(asked.elapsed() >= Duration::from_millis(2_022), "the longest ttl");
    assert_eq!(nodes.states().await, ["voting"; 3]);
    // The first node, which kept its counters, does not vote.
    let after = nodes.token_without(0).await.unwrap();
    assert!(after > before, "{after} follows {before}");
}

/// Node 1 has no vote, and is not named. It alone has the highest counter, which is above the clock. Returns
/// that, and the arguments of a start of nodes 0, 3 and 4.
async fn with_the_highest_counter_on_another_member() -> (Nodes, u64, [String; 3], String) {
    let mut nodes = Nodes::cluster(&ALWAYS).await;
    nodes.set_counters(HIGH).await;
    let before = nodes.token_without(0).await.unwrap();
    // It has missed the release, too.
    nodes.0[0].set("fenced:{r}:token", &HIGH.to_string()).await.unwrap();
    let cluster = nodes.cluster_of_node(0).await;
    nodes.0[1].restart().await.unwrap();
    nodes.0[2].process().kill().unwrap();
    nodes.0.extend(Nodes::start(2, &[]).await.0);
    let urls = nodes.urls();
    (nodes, before, [0, 3, 4].map(|node| urls[node].clone()), cluster)
}

#[tokio::test]
async fn start_again_copies_the_counters_of_a_member_that_is_not_named() {
    for is_gone in [false, true] {
        let (mut nodes, before, again, cluster) =
            with_the_highest_counter_on_another_member().await;
        if is_gone {
            nodes.0[1].process().kill().unwrap();
        }
        let started = init(&again, &["--again", &cluster]).await;
        assert!(started.status.success(), "{started:?}");
        drop(nodes.0.drain(1..3));
        let after = nodes.token().await.unwrap();
        // The control: without that member, nobody knows the token.
        assert_eq!(after > before, !is_gone, "{after} follows {before}");
    }
}

#[tokio::test]
async fn start_again_leaves_out_no_member_that_hangs_during_the_wait() {
    let (mut nodes, before, again, cluster) = with_the_highest_counter_on_another_member().await;
    let lost = ["--again", &*cluster];
    let hanging = async {
        until_async(PATIENCE, async || Ok(retired(&nodes.0[0]).await.is_some())).await.unwrap();
        nodes.0[1].process().pause().await.unwrap();
    };
    let (rejected, ()) = tokio::join!(init(&again, &lost), hanging);
    assert_failed(&rejected, 69, "it answered before the wait");
    // The control.
    nodes.0[1].process().resume().unwrap();
    let started = init(&again, &lost).await;
    assert!(started.status.success(), "{started:?}");
    assert!(nodes.counter(3).await >= Some(before));
}

/// The control: the nodes start with the old counters.
#[tokio::test]
async fn if_old_counters_are_kept_a_token_is_issued_twice() {
    let (nodes, before) = without_majority().await;
    for node in &nodes.0 {
        node.command::<()>(&["DEL", "fenced:node"]).await.unwrap();
    }
    assert!(init(&nodes.urls(), &[]).await.status.success());
    assert_eq!(nodes.token_without(0).await, Ok(before));
}

#[tokio::test]
async fn cluster_whose_majority_votes_is_not_started_again() {
    let mut nodes = Nodes::cluster(&[]).await;
    nodes.0[0].restart().await.unwrap();
    let lost = ["--again", &nodes.cluster_of_node(1).await];
    assert_failed(&init(&nodes.urls(), &lost).await, 64, "a majority of the nodes may vote");
    assert_eq!(nodes.states().await, ["no-cluster", "voting", "voting"]);
    // With all nodes empty, it waits as well.
    for node in 0..3 {
        nodes.0[node].restart().await.unwrap();
    }
    let asked = Instant::now();
    let started = init(&nodes.urls(), &["--again", "none"]).await;
    assert!(started.status.success(), "{started:?}");
    assert!(asked.elapsed() >= Duration::from_millis(2_022), "the longest ttl");
    assert!(nodes.token().await.is_ok());
}

/// Nodes 0 and 1 have lost their data. The third server belongs to a cluster of which one voter is left.
#[tokio::test]
async fn voter_of_another_cluster_does_not_decide_which_one_is_started_again() {
    let mut nodes = seven().await;
    let urls = nodes.urls();
    let cluster = nodes.cluster_of_node(0).await;
    assert!(init(&urls[4..], &[]).await.status.success());
    for lost in [1, 5, 6] {
        nodes.0[lost].process().kill().unwrap();
    }
    nodes.0[2].process().kill().unwrap();
    nodes.0[0].command::<()>(&["FLUSHALL"]).await.unwrap();
    let again = [urls[0].clone(), urls[3].clone(), urls[4].clone()];
    for lost in [&cluster, "none"] {
        let rejected = init(&again, &["--again", lost]).await;
        assert_failed(&rejected, 64, &format!("no server has data of cluster {lost}"));
    }
    assert_eq!(nodes.0[4].command::<u8>(&["HEXISTS", "fenced:node", "vote"]).await.unwrap(), 1);
}

/// Such a member is not gone. The operator may have a wrong password.
#[tokio::test]
async fn cluster_is_not_started_again_while_a_member_rejects_the_password() {
    let mut nodes = seven().await;
    let urls = nodes.urls();
    let lost = ["--again", &nodes.cluster_of_node(0).await];
    nodes.0[1].process().kill().unwrap();
    nodes.0[2].command::<()>(&["CONFIG", "SET", "requirepass", "secret"]).await.unwrap();
    let again = [urls[0].clone(), urls[3].clone(), urls[4].clone()];
    let rejected = init(&again, &lost).await;
    assert_failed(&rejected, 64, "may vote in the cluster that is started again");
    assert_eq!(nodes.states_of(&[0, 3, 4]).await[0], "voting");
    // The control: it is gone.
    nodes.0[2].process().kill().unwrap();
    let started = init(&again, &lost).await;
    assert!(started.status.success(), "{started:?}");
}

/// Two nodes hold one roster of the second term, and two another one. The fifth is lost.
#[tokio::test]
async fn cluster_of_five_that_is_split_for_good_is_started_again() {
    let mut nodes = Nodes::start(8, &[]).await;
    let urls = nodes.urls();
    assert!(init(&urls[..5], &[]).await.status.success());
    nodes.set_counters(HIGH).await;
    let first: String = nodes.0[0].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    let script = concat!(
        include_str!("../../../src/redlock/run_id.lua"),
        "local vote = '2000 ' .. run_id() .. ' ' .. redis.sha1hex(ARGV[1])
        redis.call('HSET', KEYS[1], 'roster', ARGV[1], 'vote', vote)"
    );
    for (seat, new, members) in [(4, 5, [0, 1]), (3, 6, [2, 4])] {
        let mut lines: Vec<_> = first.lines().map(ToOwned::to_owned).collect();
        lines[0] = lines[0].replacen(" 1 ", " 2 ", 1);
        let process = nodes.0[new].info("run_id").await.unwrap();
        lines[seat + 1] = format!("2 {process} {}", nodes.0[new].socket().display());
        let next = lines.join("\n");
        for member in members {
            let set = ["EVAL", script, "1", "fenced:node", &next];
            nodes.0[member].command::<()>(&set).await.unwrap();
        }
    }
    nodes.0[3].process().kill().unwrap();
    nodes.0[7].set("fenced:{r}:token", "1").await.unwrap();
    let admitted = nodes.admit(3).await;
    assert!(!admitted.status.success(), "nobody decides the term: {admitted:?}");
    let again = [0, 1, 2, 4, 7].map(|node| urls[node].clone());
    let started = init(&again, &["--again", &nodes.cluster_of_node(0).await]).await;
    assert!(started.status.success(), "{started:?}");
    assert_eq!(nodes.states_of(&[0, 1, 2, 4, 7]).await, ["voting"; 5]);
    assert!(nodes.counter(7).await >= Some(HIGH));
}

/// A start was interrupted while a member answered nothing. It answers again, and rejects the password.
#[tokio::test]
async fn member_that_answers_again_counts_also_if_a_start_has_prepared_the_others() {
    let mut nodes = seven().await;
    let urls = nodes.urls();
    let (vote, cluster) = (to_be_retired(&nodes.0[0]).await, nodes.cluster_of_node(0).await);
    let again = [urls[0].clone(), urls[3].clone(), urls[4].clone()];
    nodes.0[1].process().kill().unwrap();
    pause(&mut nodes.0[2..3]).await;
    assert!(init(&again, &["--again", &cluster]).await.status.success());
    leave_prepared(&nodes.0[3..5]).await;
    leave_prepared_again(&nodes.0[0], &vote).await;
    nodes.0[2].process().resume().unwrap();
    nodes.0[2].command::<()>(&["CONFIG", "SET", "requirepass", "secret"]).await.unwrap();
    let rejected = init(&again, &["--again", &cluster]).await;
    assert_failed(&rejected, 64, "may vote in the cluster that is started again");
}

/// A majority comes back after `init --again` of nodes 0, 3 and 4 was interrupted. It has prepared the only
/// member that it could see, and admitted none. That member had restarted, so there was no vote to take.
async fn majority_that_came_back() -> (Nodes, [String; 3], String) {
    let mut nodes = Nodes::start(5, &ALWAYS).await;
    let urls = nodes.urls();
    assert!(init(&urls[..3], &[]).await.status.success());
    let cluster = nodes.cluster_of_node(0).await;
    let again = [0, 3, 4].map(|node| urls[node].clone());
    // Nodes are prepared in the order of their processes: another one comes after the member.
    let last = loop {
        nodes.0[0].restart().await.unwrap();
        let mut processes = Vec::new();
        for node in [0, 3, 4] {
            processes.push((nodes.0[node].info("run_id").await.unwrap(), node));
        }
        match processes.into_iter().max().unwrap() {
            (_, 0) => {}
            (_, last) => break last,
        }
    };
    pause(&mut nodes.0[1..3]).await;
    nodes.0[last].command::<()>(&["ACL", "SETUSER", "default", "-keys"]).await.unwrap();
    let interrupted = init(&again, &["--again", &cluster]).await;
    assert_failed(&interrupted, 69, "can't run this command");
    nodes.0[last].command::<()>(&["ACL", "SETUSER", "default", "+keys"]).await.unwrap();
    assert_ne!(nodes.cluster_of_node(0).await, cluster, "it is prepared");
    nodes.0[1..3].iter_mut().for_each(|node| node.process().resume().unwrap());
    (nodes, again, cluster)
}

#[tokio::test]
async fn prepared_node_shows_the_cluster_in_which_it_had_no_vote() {
    let (mut nodes, again, cluster) = majority_that_came_back().await;
    let lost = ["--again", &cluster];
    assert_failed(&init(&again, &lost).await, 64, "a majority of the nodes may vote");
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["prepared", "voting", "voting"]);
    // The control: without the majority, it starts. The status shows the id that it must name.
    pause(&mut nodes.0[1..3]).await;
    let status = ["node", "status", "--json", "--no-counters", "--locks", &again.join(" ")];
    let seen = events(&lock_client(&status).await);
    assert_eq!(seen.last().unwrap()["cluster"], cluster, "{seen:?}");
    let started = init(&again, &lost).await;
    assert!(started.status.success(), "{started:?}");
}

#[tokio::test]
async fn no_cluster_starts_beside_one_whose_majority_came_back() {
    let (nodes, again, cluster) = majority_that_came_back().await;
    for other in ["none", &cluster[..8]] {
        let rejected = init(&again, &["--again", other]).await;
        assert_failed(&rejected, 64, &format!("no server has data of cluster {other}"));
    }
    assert_eq!(nodes.states_of(&[0, 1, 2]).await, ["prepared", "voting", "voting"]);
}

/// Its counters are those of the old cluster, as before it was prepared.
#[tokio::test]
async fn node_that_is_prepared_in_place_of_a_cluster_is_not_new() {
    let (_nodes, again, _) = majority_that_came_back().await;
    assert_failed(&init(&again, &[]).await, 69, "with the same options");
}

/// The member that had data of the old cluster has lost them since a start was interrupted.
#[tokio::test]
async fn prepared_node_shows_the_id_of_a_cluster_without_data() {
    let mut nodes = seven().await;
    let urls = nodes.urls();
    let cluster = nodes.cluster_of_node(0).await;
    let again = [0, 3, 4].map(|node| urls[node].clone());
    for lost in [1, 2] {
        nodes.0[lost].process().kill().unwrap();
    }
    assert!(init(&again, &["--again", &cluster]).await.status.success());
    leave_prepared(&nodes.0[3..5]).await;
    nodes.0[0].command::<()>(&["FLUSHALL"]).await.unwrap();
    let rejected = init(&again, &["--again", "none"]).await;
    assert_failed(&rejected, 64, &format!("they name [{}…]", &cluster[..8]));
    let started = init(&again, &["--again", &cluster]).await;
    assert!(started.status.success(), "{started:?}");
}

/// All nodes restarted with their data. A start was interrupted after it admitted the first.
#[tokio::test]
async fn status_shows_the_voter_of_a_start_that_was_interrupted() {
    let mut nodes = Nodes::start(3, &ALWAYS).await;
    let urls = nodes.urls();
    assert!(init(&urls, &[]).await.status.success());
    let lost = nodes.cluster_of_node(0).await;
    let roster: String = nodes.0[0].command(&["HGET", "fenced:node", "roster"]).await.unwrap();
    for node in &mut nodes.0 {
        node.restart().await.unwrap();
    }
    assert!(init(&urls, &["--again", &lost]).await.status.success());
    let started = nodes.cluster_of_node(0).await;
    for node in &nodes.0[1..] {
        leave_prepared_again(node, &format!("- {roster}")).await;
    }
    assert_eq!(nodes.states().await, ["voting", "prepared", "prepared"]);
    let prepared = &nodes.status().await[1];
    assert_eq!((&prepared["cluster"], &prepared["prepared_for"]), (&lost.into(), &started.into()));
    // A process that restarts has no seat.
    nodes.0[2].restart().await.unwrap();
    assert_eq!(nodes.states().await[2], "restarted");
}
