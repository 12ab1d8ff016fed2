//! The votes in the nodes' records.

use lock_client::redlock::operator::{Admission, State};
use testbed::{Redis, RedlockNodes};

use super::{HIGH, change, client, nodes, operator, token, token_without, until_admitted};

/// Reads a field of a node's record.
async fn field(node: &Redis, field: &str) -> Option<String> {
    let command = ["HMGET", "fenced:node", field];
    node.command::<Vec<Option<String>>>(&command).await.unwrap().swap_remove(0)
}

/// Gives a node's process the vote of the epoch in its record.
async fn give_vote(node: &Redis) {
    let [change, run_id] = [field(node, "change").await, field(node, "run_id").await];
    let vote = format!("{} {}", change.unwrap(), run_id.unwrap());
    node.command::<()>(&["HSET", "fenced:node", "vote", &vote]).await.unwrap();
}

/// Has a node's address lead to another node, as a name may that somebody has changed.
fn redirect(from: &Redis, to: &Redis) {
    std::fs::rename(from.socket(), from.socket().with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(to.socket(), from.socket()).unwrap();
}

/// The tokens of two clients after node 3 has replaced node 0. The first reaches node 0 at the
/// address of node 3, and node 1 does not vote for it. The second has been connected to node 3
/// since before, and node 2 does not vote for it.
async fn tokens_with_a_removed_node(nodes: &RedlockNodes) -> [Result<u64, String>; 2] {
    let members = [3, 1, 2];
    let connected = client(nodes, &members);
    assert_eq!(token(&connected).await, Ok(HIGH + 1));
    redirect(&nodes.nodes()[3], &nodes.nodes()[0]);
    let misled = client(nodes, &members);
    let first = token_without(&nodes.nodes()[1], &misled).await;
    [first, token_without(&nodes.nodes()[2], &connected).await]
}

#[tokio::test]
async fn removed_member_has_no_vote_in_the_epoch_that_it_has_accepted() {
    let nodes = nodes(4, 3).await;
    change(&nodes, &[0, 1, 2], &[3], &[0]).await;
    let removed = &nodes.nodes()[0];
    assert_eq!(field(removed, "change").await, field(&nodes.nodes()[1], "change").await);
    assert_eq!(field(removed, "vote").await, None);
}

/// A node of an older version has given itself the vote.
#[tokio::test]
async fn client_counts_no_vote_of_a_node_that_is_no_member() {
    let nodes = nodes(4, 3).await;
    change(&nodes, &[0, 1, 2], &[3], &[0]).await;
    give_vote(&nodes.nodes()[0]).await;
    let [misled, connected] = tokens_with_a_removed_node(&nodes).await;
    misled.unwrap_err();
    assert_eq!(connected, Ok(HIGH + 2));
}

/// The control: the removed node passes for a member.
#[tokio::test]
async fn removed_node_that_votes_as_a_member_issues_a_token_twice() {
    let nodes = nodes(4, 3).await;
    change(&nodes, &[0, 1, 2], &[3], &[0]).await;
    let removed = &nodes.nodes()[0];
    let address = field(&nodes.nodes()[3], "address").await.unwrap();
    removed.command::<()>(&["HSET", "fenced:node", "address", &address]).await.unwrap();
    give_vote(removed).await;
    assert_eq!(tokens_with_a_removed_node(&nodes).await, [Ok(HIGH + 2), Ok(HIGH + 2)]);
}

/// The scripts compare the vote alone, and would reject what the operator says the node may do.
#[tokio::test]
async fn node_without_the_vote_of_its_process_and_epoch_is_admitted_again() {
    let nodes = nodes(3, 3).await;
    let (node, operator) = (&nodes.nodes()[0], operator(&nodes, &[0, 1, 2]));
    let vote = field(node, "vote").await.unwrap();
    let promise = ["HSET", "fenced:node", "promised", "7"];
    node.command::<()>(&promise).await.unwrap();
    let (change, run_id) = vote.split_once(' ').unwrap();
    for wrong in ["", &format!("other {run_id}"), &format!("{change} other")] {
        node.command::<()>(&["HSET", "fenced:node", "vote", wrong]).await.unwrap();
        assert_eq!(operator.inspect().await.nodes[0].state, State::Restarted, "{wrong:?}");
        assert!(token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await.is_err());
        until_admitted(&operator, 1).await;
        assert_eq!(field(node, "vote").await.as_ref(), Some(&vote));
        assert_eq!(field(node, "promised").await.as_deref(), Some("7"), "it is the same process");
        assert_eq!(field(node, "mark").await, None);
        let requested = operator.request_admission(&node.url()).await.unwrap();
        assert!(matches!(requested, Admission::AlreadyVoting));
    }
}
