//! The promises to ballots, which a node must know when it is admitted.

use lock_client::redlock::operator::Admission;

use super::{change, nodes, operator, until_admitted};

/// Two watchers may admit a process, one after the other.
#[tokio::test]
async fn second_admission_of_a_process_keeps_its_promises() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let operators = [operator(&nodes, &[0, 1, 2]), operator(&nodes, &[0, 1, 2])];
    let url = nodes.nodes()[0].url();
    let mut pending = Vec::new();
    for operator in &operators {
        match operator.request_admission(&url).await.unwrap() {
            Admission::Pending(admission) => pending.push(admission),
            Admission::AlreadyVoting => panic!("it has restarted"),
        }
    }
    pending.pop().unwrap().finish().await.unwrap();
    let node = &nodes.nodes()[0];
    node.command::<()>(&["HSET", "fenced:node", "promised", "7"]).await.unwrap();
    pending.pop().unwrap().finish().await.unwrap();
    let promised: Vec<String> = node.command(&["HMGET", "fenced:node", "promised"]).await.unwrap();
    assert_eq!(promised, ["7"]);
}

/// Else a ballot that it has promised to as another process could be overtaken by a lower one.
#[tokio::test]
async fn admitted_node_knows_what_the_others_have_promised_and_accepted() {
    let mut nodes = nodes(4, 3).await;
    change(&nodes, &[0, 1, 2], &[3], &[1]).await;
    let node = |node: usize| &nodes.nodes()[node];
    node(2).command::<()>(&["HSET", "fenced:node", "promised", "5"]).await.unwrap();
    let fields = [
        "HMGET",
        "fenced:node",
        "promised",
        "ballot",
        "last_promised",
        "last_change",
        "last_members",
    ];
    let known: Vec<String> = node(2).command(&fields).await.unwrap();
    let added: Vec<Option<String>> = node(3).command(&fields).await.unwrap();
    let accepted: Vec<_> = known[1..].iter().cloned().map(Some).collect();
    assert_eq!(added[1..], accepted);
    nodes.nodes_mut()[0].restart().await.unwrap();
    until_admitted(&operator(&nodes, &[0, 2, 3]), 1).await;
    let admitted: Vec<String> = nodes.nodes()[0].command(&fields).await.unwrap();
    assert_eq!(admitted, known);
}
