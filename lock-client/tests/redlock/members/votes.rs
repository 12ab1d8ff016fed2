//! The votes in the nodes' records.

use lock_client::redlock::operator::State;
use testbed::Redis;

use super::{
    HIGH, client, nodes, operator, replace, roster, states, token_without, until_admitted,
};

async fn vote(node: &Redis) -> Option<String> {
    node.command(&["HGET", "fenced:node", "vote"]).await.unwrap()
}

/// The scripts compare the vote alone, and would reject what the operator says the node may do.
#[tokio::test]
async fn node_without_the_vote_of_its_process_and_roster_is_admitted_again() {
    let nodes = nodes(3, 3).await;
    let (node, operator) = (&nodes.nodes()[0], operator(&nodes, &[0, 1, 2]));
    let own = vote(node).await.unwrap();
    let [longest, run_id, hash] = own.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let wrong = [
        String::new(),
        format!("{longest} {run_id} 0{hash}"),
        format!("{longest} other {hash}"),
        format!("{longest}0 {run_id} {hash}"),
    ];
    for wrong in wrong {
        node.command::<()>(&["HSET", "fenced:node", "vote", &wrong]).await.unwrap();
        assert_eq!(states(&operator).await[0], State::Waiting, "{wrong:?}");
        assert!(token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await.is_err());
        until_admitted(&operator, 1).await;
        assert_eq!(vote(node).await, Some(own.clone()), "it keeps its seat");
    }
}

/// It has lost more than its record.
#[tokio::test]
async fn process_that_has_lost_its_record_takes_its_seat_anew() {
    let nodes = nodes(3, 3).await;
    let operator = operator(&nodes, &[0, 1, 2]);
    assert_eq!(token_without(&nodes.nodes()[2], &client(&nodes, &[0, 1, 2])).await, Ok(HIGH + 1));
    nodes.nodes()[0].command::<()>(&["FLUSHALL"]).await.unwrap();
    assert_eq!(states(&operator).await[0], State::NoCluster);
    until_admitted(&operator, 1).await;
    let seen = operator.inspect().await;
    assert_eq!((seen.cluster.term, seen.cluster.voting), (Some(2), 3));
    let next = token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await;
    assert_eq!(next, Ok(HIGH + 2));
}

/// A process that votes for the roster before has the right process in its record.
#[tokio::test]
async fn replaced_process_has_no_vote_for_the_new_roster() {
    let nodes = nodes(4, 3).await;
    replace(&nodes, &[0, 1, 2], [0, 3]).await.unwrap();
    let replaced = &nodes.nodes()[0];
    assert_ne!(roster(replaced).await, roster(&nodes.nodes()[1]).await);
    // Whoever copies the record gives it no vote: the roster does not name the process.
    let record: Vec<String> = nodes.nodes()[1].command(&["HGETALL", "fenced:node"]).await.unwrap();
    let record: Vec<&str> = record.iter().map(String::as_str).collect();
    replaced.command::<()>(&[&["HSET", "fenced:node"], &record[..]].concat()).await.unwrap();
    let (misled, right) = (client(&nodes, &[0, 1, 2]), client(&nodes, &[3, 1, 2]));
    assert_eq!(token_without(&nodes.nodes()[1], &misled).await, Ok(HIGH + 1), "by nodes 2 and 3");
    assert_eq!(token_without(&nodes.nodes()[2], &right).await, Ok(HIGH + 2));
}
