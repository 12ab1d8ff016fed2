//! Changes of the members that an operator left half done.

use testbed::RedlockNodes;

use super::{client, decide, nodes, operator, token, until_admitted};

/// Has one member accept a change in a ballot, as an operator leaves it that ends in the middle.
pub(super) async fn accept_half(nodes: &RedlockNodes, member: usize, new: &[usize]) {
    let node = &nodes.nodes()[member];
    let fields = ["HMGET", "fenced:node", "change", "members", "run_id"];
    let known: Vec<String> = node.command(&fields).await.unwrap();
    let [change, members, run_id] = &known[..] else { panic!("{known:?}") };
    let address = |&node: &usize| nodes.nodes()[node].socket().display().to_string();
    let new = new.iter().map(address).collect::<Vec<_>>().join("\n");
    // Below the ballot of every other operator.
    let ballot = &format!("{:015}{:039}", 1, 0);
    let accepted = [
        ["last_change", change],
        ["last_members", members],
        ["last_promised", ballot],
        ["ballot", ballot],
        ["epoch", "2"],
        ["change", "half-done"],
        ["vote", &format!("half-done {run_id}")],
        ["members", &new],
    ];
    node.command::<()>(&[&["HSET", "fenced:node"], accepted.as_flattened()].concat())
        .await
        .unwrap();
    node.command::<()>(&["HDEL", "fenced:node", "decided"]).await.unwrap();
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
