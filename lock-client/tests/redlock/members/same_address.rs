//! Two processes at one address: a name that moved, a forwarder, or a socket that was bound again.

use testbed::{NodeKind, Redis, RedlockNodes};

use super::{HIGH, client, nodes, operator, token, token_without, until_admitted};

/// Has a node's address lead to another server, as a name may that somebody has changed. Clients keep
/// the connections that they have.
fn redirect(from: &Redis, to: &Redis) {
    std::fs::rename(from.socket(), from.socket().with_extension("aside")).unwrap();
    std::os::unix::fs::symlink(to.socket(), from.socket()).unwrap();
}

/// The tokens of two clients after an empty server has taken the address of node 0, whose process
/// lives: a client that is connected to the old process, and that node 2 does not vote for; and a new
/// client, that node 1 does not vote for.
async fn tokens(nodes: &RedlockNodes) -> [Result<u64, String>; 2] {
    let connected = client(nodes, &[0, 1, 2]);
    assert_eq!(token(&connected).await, Ok(HIGH + 1));
    redirect(&nodes.nodes()[0], &nodes.nodes()[3]);
    until_admitted(&operator(nodes, &[0, 1, 2]), 1).await;
    let first = token_without(&nodes.nodes()[2], &connected).await;
    [first, token_without(&nodes.nodes()[1], &client(nodes, &[0, 1, 2])).await]
}

#[tokio::test]
async fn empty_server_at_the_address_of_a_process_that_lives_issues_no_token_twice() {
    let nodes = nodes(4, 3).await;
    // A try for the old roster uses tokens, and fails.
    let [first, second] = tokens(&nodes).await.map(|token| token.unwrap());
    assert!(HIGH + 1 < first && first < second, "{first}, {second}");
    let seen = operator(&nodes, &[0, 1, 2]).inspect().await;
    assert_eq!((seen.cluster.voting, seen.cluster.term), (3, Some(2)));
}

/// The old process has a snapshot of its own, and the new one a copy of it.
#[tokio::test]
async fn copy_of_a_members_data_at_its_address_is_another_process() {
    let nodes = RedlockNodes::start(&[NodeKind::DURABLE; 3]).await.unwrap();
    crate::start_cluster::start_cluster(&nodes, super::MAX_TTL).await;
    let copy = Redis::replica_of(&nodes.nodes()[0]).await.unwrap();
    copy.promote().await.unwrap();
    redirect(&nodes.nodes()[0], copy.redis());
    let rejected = token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await.unwrap_err();
    assert!(rejected.contains("it restarted"), "{rejected}");
    until_admitted(&operator(&nodes, &[0, 1, 2]), 1).await;
    assert!(token_without(&nodes.nodes()[1], &client(&nodes, &[0, 1, 2])).await.is_ok());
}
