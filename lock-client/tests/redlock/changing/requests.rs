//! Requests for a change that are wrong, and the databases that URLs name.

use lock_client::{
    Locks,
    redlock::{
        Redlock,
        operator::{Operator, OperatorError},
    },
};
use testbed::{NodeKind, RedlockNodes};

use super::{
    super::cluster::{COUNTER, another_url},
    HIGH, MAX_TTL, TTL, change, client, nodes, operator, token, until_admitted,
};
use crate::{
    lock_service::{tried, unrenewed},
    names::name,
    start_cluster::start_cluster,
};

#[tokio::test]
async fn invalid_changes_are_rejected_and_change_nothing() {
    let nodes = nodes(5, 3).await;
    let others = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    start_cluster(&others, MAX_TTL).await;
    let mut operator = operator(&nodes, &[0, 1, 2]);
    let rejected = async |operator: &mut Operator, add: &[&str], remove: &[&str]| {
        let error = operator.change_members(add, remove).await.unwrap_err();
        assert!(matches!(error, OperatorError::Invalid(_)), "{error:?}");
        error.to_string()
    };
    let all = nodes.urls();
    let [a, b, _, d, e] = [0, 1, 2, 3, 4].map(|node| all[node].as_str());
    let fewer = rejected(&mut operator, &[], &[a]).await;
    assert!(fewer.contains("there would be 2 members"), "{fewer}");
    assert!(rejected(&mut operator, &[d], &[]).await.contains("there would be 4 members"));
    let two_of_three = rejected(&mut operator, &[d, e], &[a, b]).await;
    assert_eq!(two_of_three, "among three members, replace one at a time");
    assert!(rejected(&mut operator, &[d, e], &[d]).await.contains("both added and removed"));
    let foreign = rejected(&mut operator, &[&others.urls()[0]], &[a]).await;
    assert!(foreign.contains("belongs to cluster"), "{foreign}");
    let alias = another_url(&nodes.nodes()[1], "alias");
    assert!(rejected(&mut operator, &[&alias], &[a]).await.contains("are one server"));
    let seen = operator.inspect().await;
    assert_eq!((seen.cluster.epoch, seen.cluster.voting), (Some(1), 3));
}

/// The member list knows no databases. An operator that names others would admit the server there,
/// too.
#[tokio::test]
async fn node_in_another_database_is_not_added() {
    let nodes = nodes(4, 3).await;
    let mut operator = operator(&nodes, &[0, 1, 2]);
    let [one, three] = [1, 3].map(|node| nodes.nodes()[node].url());
    for (add, remove) in [(format!("{three}?db=1"), one.clone()), (three, format!("{one}?db=1"))] {
        let error = operator.change_members(&[add], &[remove]).await.unwrap_err();
        assert!(matches!(error, OperatorError::Invalid(_)), "{error:?}");
        let both =
            ["with database 1", "with database 0"].map(|text| error.to_string().contains(text));
        assert_eq!(both, [true; 2], "{error}");
    }
    assert_eq!(operator.inspect().await.cluster.epoch, Some(1));
}

/// The old list names a node that votes no more. Nothing is started or completed.
#[tokio::test]
async fn start_of_a_cluster_that_names_a_removed_node_is_rejected() {
    let max_ttl = lock_client::Ttl::new(MAX_TTL).unwrap();
    let mut nodes = nodes(5, 3).await;
    let rejected = async |nodes: &RedlockNodes, which: &[usize]| {
        let error = operator(nodes, which).start_cluster(max_ttl).await.unwrap_err().to_string();
        assert!(error.contains("and is no member any more"), "{error}");
    };
    // It has missed the change that removes it.
    nodes.nodes_mut()[0].process().pause().await.unwrap();
    change(&nodes, &[0, 1, 2], &[4], &[0]).await;
    nodes.nodes_mut()[0].process().resume().unwrap();
    rejected(&nodes, &[0, 1, 2]).await;
    change(&nodes, &[4, 1, 2], &[3], &[4]).await;
    rejected(&nodes, &[4, 1, 2]).await;
    let again = operator(&nodes, &[3, 1, 2]).start_cluster(max_ttl).await.unwrap();
    assert_eq!((again.voting, again.epoch), (3, Some(3)));
}

/// The control: a server with a record in two databases votes twice.
#[tokio::test]
async fn servers_that_vote_in_two_databases_issue_a_token_twice() {
    let nodes = nodes(3, 3).await;
    for node in nodes.nodes() {
        for key in ["fenced:node", COUNTER] {
            node.command::<()>(&["COPY", key, key, "DB", "1"]).await.unwrap();
        }
    }
    let others = nodes.urls().into_iter().map(|url| format!("{url}?db=1"));
    let others = Locks::new(Redlock::open(others).unwrap());
    for locks in [client(&nodes, &[0, 1, 2]), others] {
        let lease = locks.acquire(&name("r"), unrenewed(TTL)).await.unwrap();
        assert_eq!(lease.token().unwrap().as_u64(), HIGH + 1, "both are held");
        std::mem::forget(lease);
    }
}

#[tokio::test]
async fn members_are_reached_in_the_database_of_the_urls() {
    let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 4]).await.unwrap();
    let urls: Vec<_> = nodes.urls().into_iter().map(|url| format!("{url}?db=1")).collect();
    let mut operator = Operator::new(&urls[..3]).unwrap();
    operator.start_cluster(lock_client::Ttl::new(MAX_TTL).unwrap()).await.unwrap();
    operator.change_members(&urls[3..], &urls[..1]).await.unwrap();
    until_admitted(&operator, 1).await;
    let locks = Locks::new(Redlock::open(&urls[..3]).unwrap());
    assert!(token(&locks).await.is_ok());
    for (node, size) in nodes.nodes().iter().zip([0; 4]) {
        assert_eq!(node.command::<u64>(&["DBSIZE"]).await.unwrap(), size, "in database 0");
    }
    assert!(client(&nodes, &[1, 2, 3]).acquire(&name("r"), tried(TTL)).await.is_err());
}

#[tokio::test]
async fn misspelt_member_is_not_taken_for_one_that_was_removed() {
    let nodes = nodes(6, 3).await;
    let mut operator = operator(&nodes, &[0, 1, 2]);
    let [one, three, four, five] = [1, 3, 4, 5].map(|node| nodes.nodes()[node].url());
    let misspelt = format!("{one}x");
    let rejected = async |operator: &mut Operator, add: &[&str], remove: &[&str]| {
        let error = operator.change_members(add, remove).await.unwrap_err();
        assert!(matches!(error, OperatorError::Invalid(_)), "{error:?}");
        error.to_string()
    };
    let error = rejected(&mut operator, &[&three, &four], &[&misspelt]).await;
    assert!(error.contains("x is no member; the members are"), "{error}");
    rejected(&mut operator, &[&three, &four], &[&five]).await;
    assert_eq!(operator.inspect().await.cluster.epoch, Some(1));

    // A request may be repeated, also by another operator.
    let members = operator.change_members(&[&three], &[&one]).await.unwrap();
    until_admitted(&operator, 1).await;
    let mut another = self::operator(&nodes, &[0, 2, 3]);
    for operator in [&mut operator, &mut another] {
        let again = operator.change_members(&[&three], &[&one]).await.unwrap();
        assert_eq!(again, members);
    }
    // The member is removed already, so that this would be growth.
    let error = rejected(&mut another, &[&four, &five], &[&one]).await;
    assert!(error.contains("is no member; the members are"), "{error}");
    assert_eq!(another.inspect().await.cluster.epoch, Some(2));
}
