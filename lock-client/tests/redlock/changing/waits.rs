//! The waits of several operators for one node.

use std::time::{Duration, Instant};

use lock_client::redlock::operator::{Admission, OperatorError, PendingAdmission, WatchEvent};
use testbed::Redis;
use tokio::time::timeout;

use super::{MAX_TTL, PATIENCE, client, decide, nodes, nodes_for, operator};
use crate::{lock_service::unrenewed, names::name};

async fn request<'a>(
    operator: &'a lock_client::redlock::operator::Operator,
    url: &str,
) -> PendingAdmission<'a> {
    match operator.request_admission(url).await.unwrap() {
        Admission::Pending(admission) => admission,
        Admission::AlreadyVoting => panic!("it has no vote"),
    }
}

/// It may have voted since another operator admitted it, and lost its data then.
#[tokio::test]
async fn node_that_another_operator_admitted_waits_again_after_it_lost_its_data() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let url = nodes.nodes()[0].url();
    let operators = [operator(&nodes, &[0, 1, 2]), operator(&nodes, &[0, 1, 2])];
    let (first, second) = (request(&operators[0], &url).await, request(&operators[1], &url).await);
    let mut watcher = operators[1].watch();
    let noted = watcher.next().await.unwrap();
    assert!(matches!(noted, WatchEvent::Waiting { .. }), "{noted:?}");
    first.finish().await.unwrap();

    let lost = Instant::now();
    nodes.nodes()[0].command::<()>(&["FLUSHALL"]).await.unwrap();
    let rejected = second.finish().await.unwrap_err();
    assert!(matches!(rejected, OperatorError::Unavailable(_)), "{rejected:?}");
    let admission =
        async { while !matches!(watcher.next().await.unwrap(), WatchEvent::Admitted { .. }) {} };
    timeout(PATIENCE, admission).await.unwrap();
    assert!(lost.elapsed() >= MAX_TTL, "after {:?}", lost.elapsed());
}

/// The control: the mark alone shows that the node has lost its data since.
#[tokio::test]
async fn node_whose_mark_is_put_back_votes_before_its_earlier_locks_have_expired() {
    let max_ttl_ms = 10_000;
    let mut nodes = nodes_for(Duration::from_millis(max_ttl_ms), 3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let (url, node) = (nodes.nodes()[0].url(), &nodes.nodes()[0]);
    let operators = [operator(&nodes, &[0, 1, 2]), operator(&nodes, &[0, 1, 2])];
    let (first, second) = (request(&operators[0], &url).await, request(&operators[1], &url).await);
    let mark: String = node.command(&["HGET", "fenced:node", "mark"]).await.unwrap();
    first.finish().await.unwrap();
    let locks = client(&nodes, &[0, 1, 2]);
    let lease = locks.acquire(&name("r"), unrenewed(max_ttl_ms)).await.unwrap();
    node.command::<()>(&["FLUSHALL"]).await.unwrap();
    node.command::<()>(&["HSET", "fenced:node", "mark", &mark]).await.unwrap();
    second.finish().await.unwrap();
    assert!(lease.token().is_ok(), "it votes while a lock is held that it has forgotten");
}

/// Marks a node's process, as an operator does that has read this vote in its record.
async fn mark(node: &Redis, vote: &str) -> Option<String> {
    let script = concat!(
        include_str!("../../../src/redlock/run_id.lua"),
        include_str!("../../../src/redlock/operator/mark.lua"),
    );
    let run_id = node.info("run_id").await.unwrap();
    node.command(&["EVAL", script, "1", "fenced:node", &run_id, "random", vote]).await.unwrap()
}

/// Another operator may admit it after the first has seen it without a vote.
#[tokio::test]
async fn process_that_votes_by_now_gets_no_mark() {
    let nodes = nodes(3, 3).await;
    let node = &nodes.nodes()[0];
    let vote: String = node.command(&["HGET", "fenced:node", "vote"]).await.unwrap();
    assert_eq!(mark(node, "").await, None);
    assert!(!node.command::<bool>(&["HEXISTS", "fenced:node", "mark"]).await.unwrap());
    // It has missed a change, and still has the vote of the epoch before.
    assert!(mark(node, &vote).await.is_some());
}

/// It votes from then on. So it waits again if it loses its vote, or misses another change.
#[tokio::test]
async fn member_that_accepts_a_change_loses_its_mark() {
    let nodes = nodes(4, 3).await;
    let node = &nodes.nodes()[0];
    node.command::<()>(&["HSET", "fenced:node", "mark", "mark"]).await.unwrap();
    decide(&mut operator(&nodes, &[0, 1, 2]), &nodes, [&[3], &[1]]).await.unwrap();
    let fields = ["HMGET", "fenced:node", "epoch", "mark"];
    let known: Vec<Option<String>> = node.command(&fields).await.unwrap();
    assert_eq!(known, [Some("2".to_owned()), None]);
}

/// It answers all the time, and only its user may run no script.
#[tokio::test]
async fn node_that_cannot_be_marked_is_not_reported_as_silent() {
    let mut nodes = nodes(3, 3).await;
    nodes.nodes_mut()[0].restart().await.unwrap();
    let node = &nodes.nodes()[0];
    node.command::<()>(&["ACL", "SETUSER", "default", "-eval"]).await.unwrap();
    let operator = operator(&nodes, &[0, 1, 2]);
    let mut watcher = operator.watch();
    let left_alone = watcher.next().await.unwrap();
    let WatchEvent::LeftAlone { reason, .. } = left_alone else { panic!("{left_alone:?}") };
    assert!(reason.contains("no permissions"), "{reason}");
    node.command::<()>(&["ACL", "SETUSER", "default", "+eval"]).await.unwrap();
    let next = timeout(PATIENCE, watcher.next()).await.unwrap().unwrap();
    assert!(matches!(next, WatchEvent::Waiting { .. }), "{next:?}");
}

/// A record would make clients that name the server alone take it for a node.
#[tokio::test]
async fn watcher_leaves_no_mark_on_a_server_that_is_no_member() {
    let nodes = nodes(6, 3).await;
    // All are strangers, and then one.
    for named in [[3, 4, 5], [0, 1, 5]] {
        let operator = operator(&nodes, &named);
        let mut watcher = operator.watch();
        let look = async { while watcher.next().await.is_ok() {} };
        timeout(MAX_TTL * 3, look).await.unwrap_err();
        let rejected = operator.request_admission(&nodes.nodes()[5].url()).await;
        assert!(rejected.is_err(), "{rejected:?}");
        for stranger in &nodes.nodes()[3..] {
            assert_eq!(stranger.command::<u64>(&["DBSIZE"]).await.unwrap(), 0);
        }
    }
}
