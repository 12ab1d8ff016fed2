//! Takeovers that an operator left half done.

use lock_client::redlock::operator::State;
use testbed::RedlockNodes;

use super::{
    HIGH, by_hand::set_roster, client, nodes, operator, replace, roster, states, token,
    token_without, until_admitted,
};

/// The script by which an operator changes the record of a process.
const CHANGE: &str = concat!(
    include_str!("../../../src/redlock/run_id.lua"),
    include_str!("../../../src/redlock/operator/change.lua")
);

/// The roster of the next term, in which a server has a member's seat. The server is prepared for it.
async fn next_roster(nodes: &RedlockNodes, seat: usize, server: usize) -> String {
    let present = roster(&nodes.nodes()[1]).await.unwrap();
    let mut lines: Vec<_> = present.lines().map(ToOwned::to_owned).collect();
    let mut words: Vec<_> = lines[0].split(' ').map(ToOwned::to_owned).collect();
    let term = words[1].parse::<u64>().unwrap() + 1;
    words[1] = term.to_string();
    lines[0] = words.join(" ");
    let server = &nodes.nodes()[server];
    let process = server.info("run_id").await.unwrap();
    lines[seat + 1] = format!("{term} {process} {}", server.socket().display());
    let next = lines.join("\n");
    server.command::<()>(&["HSET", "fenced:node", "roster", &next]).await.unwrap();
    next
}

/// Has one member close for a roster in which a server has a member's seat, as an operator leaves it that
/// ends in the middle.
pub(super) async fn close_half(nodes: &RedlockNodes, member: usize, [seat, server]: [usize; 2]) {
    let next = next_roster(nodes, seat, server).await;
    set_roster(&nodes.nodes()[member], &next).await;
}

#[tokio::test]
async fn takeover_that_is_half_done_is_finished_by_a_watcher() {
    for closed in [&[1][..], &[1, 2]] {
        let nodes = nodes(4, 3).await;
        let next = next_roster(&nodes, 0, 3).await;
        for &member in closed {
            set_roster(&nodes.nodes()[member], &next).await;
        }
        let operator = operator(&nodes, &[0, 1, 2]);
        until_admitted(&operator, 1).await;
        let seen = operator.inspect().await;
        assert_eq!((seen.cluster.term, seen.cluster.voting), (Some(2), 3));
        assert_eq!(
            token(&client(&nodes, &[0, 1, 2])).await,
            Ok(HIGH + 1),
            "old members name the new"
        );
    }
}

/// Another operator wants another server in the seat, and finds the first one's takeover.
#[tokio::test]
async fn takeover_that_is_half_done_is_finished_before_another_begins() {
    let nodes = nodes(5, 3).await;
    close_half(&nodes, 1, [0, 3]).await;
    replace(&nodes, &[0, 1, 2], [2, 4]).await.unwrap();
    let operator = operator(&nodes, &[1, 3, 4]);
    until_all_vote(&operator).await;
    let seen = operator.inspect().await;
    assert_eq!((seen.cluster.term, seen.cluster.voting), (Some(3), 3));
}

async fn until_all_vote(operator: &lock_client::redlock::operator::Operator) {
    let mut watcher = operator.watch();
    let all = async || Ok(states(operator).await.iter().all(|state| *state == State::Voting));
    tokio::select! {
        voted = testbed::wait::until_async(super::PATIENCE, all) => voted.unwrap(),
        event = async { loop { watcher.next().await; } } => event,
    }
}

/// Two operators disagree on one seat, and each has closed one member. Without an order of their rosters
/// they would stop each other for good.
#[tokio::test]
async fn one_of_two_rosters_of_a_term_gives_way() {
    let nodes = nodes(5, 3).await;
    let rosters = [next_roster(&nodes, 0, 3).await, next_roster(&nodes, 0, 4).await];
    for (member, next) in [1, 2].into_iter().zip(&rosters) {
        set_roster(&nodes.nodes()[member], next).await;
    }
    let operator = operator(&nodes, &[0, 1, 2]);
    assert_eq!(operator.inspect().await.cluster.term, None, "neither has a majority");
    until_admitted(&operator, 1).await;
    assert_eq!(operator.inspect().await.cluster.voting, 3);
    let kept = roster(&nodes.nodes()[1]).await;
    assert_eq!(kept, roster(&nodes.nodes()[2]).await);
    assert!(rosters.contains(&kept.unwrap()));
}

/// Each request compares before it changes anything.
#[tokio::test]
async fn member_takes_no_roster_in_place_of_another_than_its_own() {
    let nodes = nodes(4, 3).await;
    let next = next_roster(&nodes, 0, 3).await;
    let node = &nodes.nodes()[1];
    let (own, process) = (roster(node).await.unwrap(), node.info("run_id").await.unwrap());
    let vote: String = node.command(&["HGET", "fenced:node", "vote"]).await.unwrap();
    let retired = format!("before {own}");
    node.command::<()>(&["HSET", "fenced:node", "retired", &retired]).await.unwrap();
    let change = async |process: &str, seen: [&str; 3]| {
        let change = ["EVAL", CHANGE, "1", "fenced:node", process];
        let change = [&change[..], &seen[..], &[next.as_str(), "", "", ""]].concat();
        let (_, fields): (String, (String, Option<String>, Option<String>)) =
            node.command(&change).await.unwrap();
        fields
    };
    for (process, seen) in [
        (&*process, [&*format!("{own} "), &*vote, &*retired]),
        ("other", [&own, &vote, &retired]),
        (&process, [&own, "", &retired]),
        (&process, [&own, &vote.replacen(' ', "  ", 1), &retired]),
        (&process, [&own, &vote, ""]),
        (&process, [&own, &vote, &retired.replacen("before", "other", 1)]),
    ] {
        let unchanged = (own.clone(), Some(vote.clone()), Some(retired.clone()));
        assert_eq!(change(process, seen).await, unchanged);
    }
    assert!(token_without(&nodes.nodes()[2], &client(&nodes, &[0, 1, 2])).await.is_ok());
    // The control: it is exactly as it was seen.
    let changed = (next.clone(), None, None);
    assert_eq!(change(&process, [&own, &vote, &retired]).await, changed);
}
