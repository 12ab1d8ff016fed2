//! The waits of several operators for one node.

use std::time::Instant;

use lock_client::redlock::operator::{Operator, OperatorError, WatchEvent};
use tokio::time::timeout;

use super::{MAX_TTL, PATIENCE, nodes, operator, roster, states};

/// It may have voted since another operator admitted it, and lost its data then.
#[tokio::test]
async fn node_that_another_operator_admitted_waits_again_after_it_lost_its_data() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let url = nodes.nodes()[0].url();
    let operators = [operator(&nodes, &[0, 1, 2]), operator(&nodes, &[0, 1, 2])];
    let mut watcher = operators[1].watch();
    loop {
        if let WatchEvent::Waiting { .. } = watcher.next().await {
            break;
        }
    }
    operators[0].admit(&url, None, drop).await.unwrap();
    let lost = Instant::now();
    nodes.nodes()[0].command::<()>(&["FLUSHALL"]).await.unwrap();
    let admission = async { while !matches!(watcher.next().await, WatchEvent::Admitted { .. }) {} };
    timeout(PATIENCE, admission).await.unwrap();
    assert!(lost.elapsed() >= MAX_TTL, "after {:?}", lost.elapsed());
}

/// A rival that starts late finds how far the takeover is, and waits for itself.
#[tokio::test]
async fn operator_that_comes_later_waits_as_long_and_may_be_overtaken() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let url = nodes.nodes()[0].url();
    let first = operator(&nodes, &[0, 1, 2]);
    let mut watcher = first.watch();
    loop {
        if let WatchEvent::Waiting { .. } = watcher.next().await {
            break;
        }
    }
    // It has stopped in the middle.
    drop(watcher);
    let asked = Instant::now();
    operator(&nodes, &[0, 1, 2]).admit(&url, None, drop).await.unwrap();
    assert!(asked.elapsed() >= MAX_TTL, "after {:?}", asked.elapsed());
    assert_eq!(first.inspect().await.cluster.term, Some(2), "in the term that the first began");
}

/// It answers all the time, and only its user may run no script.
#[tokio::test]
async fn node_that_cannot_be_prepared_is_not_reported_as_silent() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let node = &nodes.nodes()[0];
    node.command::<()>(&["ACL", "SETUSER", "default", "-eval"]).await.unwrap();
    let operator = operator(&nodes, &[0, 1, 2]);
    let mut watcher = operator.watch();
    let left_alone = watcher.next().await;
    let WatchEvent::LeftAlone { reason, .. } = left_alone else { panic!("{left_alone:?}") };
    assert!(reason.contains("no permissions"), "{reason}");
    node.command::<()>(&["ACL", "SETUSER", "default", "+eval"]).await.unwrap();
    let next = timeout(PATIENCE, watcher.next()).await.unwrap();
    assert!(matches!(next, WatchEvent::Waiting { .. }), "{next:?}");
}

/// A record would make clients that name the server alone take it for a node.
#[tokio::test]
async fn watcher_leaves_nothing_on_a_server_that_is_no_member() {
    let nodes = nodes(6, 3).await;
    // All are strangers, and then one.
    for named in [[3, 4, 5], [0, 1, 5]] {
        let operator = operator(&nodes, &named);
        let mut watcher = operator.watch();
        let look = async {
            loop {
                watcher.next().await;
            }
        };
        let never: Result<std::convert::Infallible, _> = timeout(MAX_TTL * 3, look).await;
        never.unwrap_err();
        let rejected = operator.admit(&nodes.nodes()[5].url(), None, drop).await;
        assert!(rejected.is_err(), "{rejected:?}");
        for stranger in &nodes.nodes()[3..] {
            assert_eq!(stranger.command::<u64>(&["DBSIZE"]).await.unwrap(), 0);
        }
    }
}

/// One sick candidate must not hold up the others.
#[tokio::test]
async fn node_that_is_not_fit_does_not_delay_another() {
    let mut nodes = nodes(5, 5).await;
    for node in [0, 1] {
        nodes.nodes_mut()[node].restart().await.unwrap();
    }
    let evict = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    nodes.nodes()[0].command::<()>(&evict).await.unwrap();
    let operator: Operator = operator(&nodes, &[0, 1, 2, 3, 4]);
    let rejected = operator.admit(&nodes.nodes()[0].url(), None, drop).await.unwrap_err();
    assert!(matches!(rejected, OperatorError::Invalid(_)), "{rejected:?}");
    operator.admit(&nodes.nodes()[1].url(), None, drop).await.unwrap();
    use lock_client::redlock::operator::State::{NoCluster, Voting};
    assert_eq!(states(&operator).await, [NoCluster, Voting, Voting, Voting, Voting]);
}

/// A lease might count the locks of its earlier process.
#[tokio::test]
async fn node_whose_locks_cannot_be_found_is_not_prepared() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let node = &nodes.nodes()[0];
    node.command::<()>(&["ACL", "SETUSER", "default", "-keys"]).await.unwrap();
    let operator = operator(&nodes, &[0, 1, 2]);
    let rejected = operator.admit(&node.url(), None, drop).await.unwrap_err();
    assert!(rejected.to_string().contains("can't run this command"), "{rejected}");
    assert_eq!(roster(node).await, None);
    // The control: it may find them.
    node.command::<()>(&["ACL", "SETUSER", "default", "+keys"]).await.unwrap();
    operator.admit(&node.url(), None, drop).await.unwrap();
}
