//! Changes of the members that an operator left half done.

use lock_client::redlock::operator::{Admission, State, WatchEvent};
use testbed::RedlockNodes;
use tokio::time::timeout;

use super::{MAX_TTL, PATIENCE, client, decide, nodes, operator, token, until_admitted};

/// Has one member accept a change in a ballot, as an operator leaves it that ends in the middle.
pub(super) async fn accept_half(nodes: &RedlockNodes, member: usize, new: &[usize]) {
    let node = &nodes.nodes()[member];
    let fields = ["HMGET", "fenced:node", "change", "members", "run_id"];
    let known: Vec<String> = node.command(&fields).await.unwrap();
    let [change, members, run_id] = &known[..] else { panic!("{known:?}") };
    let address = |&node: &usize| nodes.nodes()[node].socket().display().to_string();
    let new: Vec<_> = new.iter().map(address).collect();
    // Below the ballot of every other operator.
    let ballot = &format!("{:015}{:039}", 1, 0);
    let accepted = [
        ["last_change", change],
        ["last_members", members],
        ["last_promised", ballot],
        ["ballot", ballot],
        ["epoch", "2"],
        ["change", "half-done"],
        ["members", &new.join("\n")],
    ];
    let vote = format!("half-done {run_id}");
    let (vote, gone) = match new.contains(&address(&member)) {
        true => (&["vote", &vote][..], &["decided"][..]),
        false => (&[][..], &["decided", "vote"][..]),
    };
    let set = [&["HSET", "fenced:node"], accepted.as_flattened(), vote].concat();
    node.command::<()>(&set).await.unwrap();
    node.command::<()>(&[&["HDEL", "fenced:node"], gone].concat()).await.unwrap();
}

#[tokio::test]
async fn change_that_is_half_done_is_finished_instead_of_another() {
    // A majority may have accepted it: it is decided, but nobody has noted that.
    for accepted in [&[1][..], &[1, 2]] {
        let nodes = nodes(5, 3).await;
        for &member in accepted {
            accept_half(&nodes, member, &[3, 1, 2]).await;
        }
        let mut other = operator(&nodes, &[0, 1, 2]);
        let error = decide(&mut other, &nodes, [&[4], &[0]]).await.unwrap_err();
        assert!(error.to_string().contains("has been finished"), "{error}");
        until_admitted(&operator(&nodes, &[1, 2, 3]), 1).await;
        let views = operator(&nodes, &[1, 2, 3]).inspect().await;
        assert_eq!((views.cluster.epoch, views.cluster.voting), (Some(2), 3));
        assert!(token(&client(&nodes, &[0, 1, 2])).await.is_ok(), "old members name the new ones");
    }
}

#[tokio::test]
async fn member_that_accepted_an_undecided_change_and_restarted_is_admitted() {
    let nodes = nodes(4, 3).await;
    accept_half(&nodes, 0, &[3, 1, 2]).await;
    // As if its file had brought this back.
    nodes.nodes()[0].command::<()>(&["HSET", "fenced:node", "run_id", "before"]).await.unwrap();
    until_admitted(&operator(&nodes, &[0, 1, 2]), 1).await;
    let views = operator(&nodes, &[0, 1, 2]).inspect().await;
    assert_eq!((views.cluster.epoch, views.cluster.voting), (Some(1), 3));
}

/// The member that has accepted it does not answer, and the others know nothing of it. It was not
/// decided, so another change may be.
#[tokio::test]
async fn member_that_accepted_an_undecided_change_takes_part_in_the_decided_one() {
    let mut nodes = nodes(7, 5).await;
    accept_half(&nodes, 1, &[5, 1, 2, 3, 4]).await;
    nodes.nodes_mut()[1].process().pause().await.unwrap();
    let mut other = operator(&nodes, &[0, 1, 2, 3, 4]);
    let members = decide(&mut other, &nodes, [&[6], &[0]]).await.unwrap();
    nodes.nodes_mut()[1].process().resume().unwrap();
    let operator = operator(&nodes, &[1, 2, 3, 4, 6]);
    until_admitted(&operator, 1).await;
    let record: Vec<String> =
        nodes.nodes()[1].command(&["HMGET", "fenced:node", "members"]).await.unwrap();
    assert_eq!(record, [members.join("\n")]);
    let views = operator.inspect().await;
    assert_eq!((views.cluster.epoch, views.cluster.voting), (Some(2), 5));
}

/// When three nodes become five, an epoch needs three voters: the old nodes without one that missed
/// the change are too few for either epoch.
#[tokio::test]
async fn half_done_growth_is_finished_by_a_watcher() {
    let nodes = nodes(5, 3).await;
    for member in [0, 1] {
        accept_half(&nodes, member, &[0, 1, 2, 3, 4]).await;
    }
    assert_eq!(operator(&nodes, &[0, 1, 2]).inspect().await.cluster.epoch, None);
    until_admitted(&operator(&nodes, &[0, 1, 2]), 2).await;
    let views = operator(&nodes, &[0, 1, 2]).inspect().await;
    assert_eq!((views.cluster.nodes, views.cluster.voting), (5, 5));
}

/// Node 5 replaces node 4 of five members. Two have accepted that, and node 3 has restarted: neither
/// epoch has a majority.
async fn without_an_epoch() -> RedlockNodes {
    let mut nodes = nodes(6, 5).await;
    for member in [0, 1] {
        accept_half(&nodes, member, &[0, 1, 2, 3, 5]).await;
    }
    nodes.nodes_mut()[3].restart().await.unwrap();
    nodes
}

#[tokio::test]
async fn request_for_an_admission_finishes_a_change_that_is_half_done() {
    let nodes = without_an_epoch().await;
    let operator = operator(&nodes, &[0, 1, 2, 3, 4]);
    let admission = operator.request_admission(&nodes.nodes()[3].url()).await;
    match admission.unwrap() {
        Admission::Pending(pending) => pending.finish().await.unwrap(),
        Admission::AlreadyVoting => panic!("it has restarted"),
    };
    let views = operator.inspect().await;
    assert_eq!((views.cluster.epoch, views.cluster.voting), (Some(2), 4));
}

/// Has some nodes promise nothing.
async fn forbid_scripts(nodes: &RedlockNodes, which: &[usize]) {
    for &node in which {
        let forbid = ["ACL", "SETUSER", "default", "-eval", "-evalsha"];
        nodes.nodes()[node].command::<()>(&forbid).await.unwrap();
    }
}

/// Enough members vote, so that no counter is lost.
#[tokio::test]
async fn half_done_change_that_cannot_be_finished_is_no_reason_to_delete_counters() {
    let nodes = without_an_epoch().await;
    forbid_scripts(&nodes, &[2, 4]).await;
    let operator = operator(&nodes, &[0, 1, 2, 3, 4]);
    let [voting, restarted] = [2, 3].map(|node| nodes.nodes()[node].url());
    let requested = operator.request_admission(&restarted).await.unwrap_err().to_string();
    let voting = operator.request_admission(&voting).await.unwrap_err().to_string();
    let mut watcher = operator.watch();
    let watched = async {
        loop {
            match watcher.next().await.unwrap() {
                WatchEvent::NotAdmitted { reason, .. } => return reason,
                WatchEvent::TooFewVoters { reason } => panic!("{reason}"),
                _ => {}
            }
        }
    };
    let watched = timeout(PATIENCE, watched).await.unwrap();
    for error in [requested, voting, watched] {
        assert!(error.contains("a change of the members is half done"), "{error}");
        assert!(error.contains("`lock-client node change` again"), "{error}");
        assert!(!error.contains("delete") && !error.contains("()"), "{error}");
    }
}

/// A watcher that has seen the node wait reports it once, and not each second.
#[tokio::test]
async fn reason_why_a_node_is_not_admitted_without_an_epoch_is_reported_once() {
    let mut nodes = nodes(6, 5).await;
    nodes.nodes_mut()[3].restart().await.unwrap();
    let operator = operator(&nodes, &[0, 1, 2, 3, 4]);
    let mut watcher = operator.watch();
    let waiting = watcher.next().await.unwrap();
    assert!(matches!(waiting, WatchEvent::Waiting { .. }), "{waiting:?}");
    for member in [0, 1] {
        accept_half(&nodes, member, &[0, 1, 2, 3, 5]).await;
    }
    forbid_scripts(&nodes, &[2, 4]).await;
    let reported = watcher.next().await.unwrap();
    assert!(matches!(reported, WatchEvent::NotAdmitted { .. }), "{reported:?}");
    let again = timeout(MAX_TTL * 3, watcher.next()).await;
    assert!(again.is_err(), "{again:?}");
}

/// Node 0 has accepted the change that removes it, and node 2 has lost its data. Neither the old
/// members nor the new ones can admit anybody.
#[tokio::test]
async fn watcher_counts_no_removed_node_as_a_voter() {
    let mut nodes = nodes(4, 3).await;
    accept_half(&nodes, 0, &[3, 1, 2]).await;
    nodes.nodes_mut()[2].restart().await.unwrap();
    let operator = operator(&nodes, &[0, 1, 2]);
    let mut watcher = operator.watch();
    let too_few = async {
        loop {
            match watcher.next().await.unwrap() {
                WatchEvent::TooFewVoters { reason } => return reason,
                WatchEvent::NotAdmitted { reason, .. } => panic!("{reason}"),
                _ => {}
            }
        }
    };
    let reason = timeout(PATIENCE, too_few).await.unwrap();
    assert!(reason.contains("it is no member any more"), "{reason}");
}

/// Most members vote in the old epoch, and accept locks without the member that has accepted the change.
#[tokio::test]
async fn change_that_one_member_has_accepted_is_finished_by_a_watcher() {
    let nodes = nodes(4, 3).await;
    accept_half(&nodes, 0, &[0, 1, 3]).await;
    let operator = operator(&nodes, &[0, 1, 2]);
    assert_eq!(operator.inspect().await.cluster.epoch, Some(1));
    until_admitted(&operator, 1).await;
    let views = operator.inspect().await;
    assert_eq!((views.cluster.epoch, views.cluster.voting), (Some(2), 3));
}

#[tokio::test]
async fn node_that_an_interrupted_change_adds_is_told_from_a_stranger() {
    let nodes = nodes(5, 3).await;
    accept_half(&nodes, 0, &[3, 1, 2]).await;
    for (server, advice) in
        [(3, "`lock-client node change` again"), (4, "`lock-client node change` adds it")]
    {
        let seen = operator(&nodes, &[1, 2, server]).inspect().await;
        let view = seen.nodes.last().unwrap();
        assert_eq!((view.state, seen.cluster.epoch), (State::NotAMember, Some(1)));
        assert!(view.reason.as_ref().unwrap().contains(advice), "{view:?}");
    }
}
