//! Requests that are wrong, and the databases that URLs name.

use lock_client::{
    Locks,
    redlock::{
        Redlock,
        operator::{Operator, OperatorError},
    },
};
use testbed::{NodeKind, RedlockNodes};

use super::{super::cluster::COUNTER, HIGH, MAX_TTL, TTL, client, nodes, operator, replace, token};
use crate::{
    lock_service::{tried, unrenewed},
    names::name,
    start_cluster::start_cluster,
};

#[tokio::test]
async fn invalid_replacements_are_rejected_and_change_nothing() {
    let nodes = nodes(5, 3).await;
    let others = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    start_cluster(&others, MAX_TTL).await;
    let operator = operator(&nodes, &[0, 1, 2]);
    let [a, three, four] = [0, 3, 4].map(|node| nodes.nodes()[node].url());
    let rejected = async |node: &str, instead_of: Option<&str>| {
        operator.admit(node, instead_of, drop).await.unwrap_err()
    };
    for (node, instead_of) in [(&three, None), (&three, Some(&*four))] {
        let error = rejected(node, instead_of).await;
        assert!(matches!(error, OperatorError::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("is no member of the cluster"), "{error}");
    }
    let foreign = rejected(&others.urls()[0], Some(&a)).await.to_string();
    assert!(foreign.contains("belongs to cluster"), "{foreign}");
    let misspelt = rejected(&three, Some(&format!("{a}x"))).await.to_string();
    assert!(misspelt.contains("x is no member"), "{misspelt}");
    for (node, old) in [(format!("{three}?db=1"), a.clone()), (three, format!("{a}?db=1"))] {
        let error = operator.admit(&node, Some(&old), drop).await.unwrap_err();
        assert!(matches!(error, OperatorError::Invalid(_)), "{error:?}");
        let both =
            ["with database 1", "with database 0"].map(|text| error.to_string().contains(text));
        assert_eq!(both, [true; 2], "{error}");
    }
    let seen = operator.inspect().await;
    assert_eq!((seen.cluster.term, seen.cluster.voting), (Some(1), 3));
}

#[tokio::test]
async fn replacement_may_be_repeated() {
    let nodes = nodes(4, 3).await;
    let first = replace(&nodes, &[0, 1, 2], [1, 3]).await.unwrap();
    assert_eq!(first.raised, 1);
    for members in [[0, 1, 2], [0, 2, 3]] {
        let again = replace(&nodes, &members, [1, 3]).await.unwrap();
        assert_eq!(again.raised, 0, "it votes already");
    }
    assert_eq!(operator(&nodes, &[0, 1, 2]).inspect().await.cluster.term, Some(2));
}

/// The old list names a node that votes no more. Nothing is started or completed.
#[tokio::test]
async fn start_of_a_cluster_on_nodes_of_another_is_rejected() {
    let nodes = nodes(4, 3).await;
    replace(&nodes, &[0, 1, 2], [0, 3]).await.unwrap();
    for named in [[0, 1, 2], [3, 1, 2]] {
        let max_ttl = lock_client::Ttl::new(MAX_TTL).unwrap();
        let error = operator(&nodes, &named).start_cluster(max_ttl).await.unwrap_err().to_string();
        assert!(error.contains("belongs to cluster"), "{error}");
    }
    assert_eq!(token(&client(&nodes, &[3, 1, 2])).await, Ok(HIGH + 1));
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
    let operator = Operator::new(&urls[..3]).unwrap();
    operator.start_cluster(lock_client::Ttl::new(MAX_TTL).unwrap()).await.unwrap();
    operator.admit(&urls[3], Some(&urls[0]), drop).await.unwrap();
    let locks = Locks::new(Redlock::open(&urls[..3]).unwrap());
    assert!(token(&locks).await.is_ok());
    for (node, size) in nodes.nodes().iter().zip([0; 4]) {
        assert_eq!(node.command::<u64>(&["DBSIZE"]).await.unwrap(), size, "in database 0");
    }
    assert!(client(&nodes, &[1, 2, 3]).acquire(&name("r"), tried(TTL)).await.is_err());
}
