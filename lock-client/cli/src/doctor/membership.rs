//! Whether the nodes of a Redlock cluster may vote.

use lock_client::redlock::operator::{Cluster, Persistence, State, View};
use redis::{RedisResult, aio::ConnectionLike};

use super::{
    connection::ask,
    finding::{Cure, Finding, Severity},
    locking,
};

const CHECK: &str = "membership";

/// Checks that a Redis that is named alone is not a node of a cluster.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn named_alone(
    connection: &mut impl ConnectionLike,
) -> RedisResult<Option<Finding>> {
    let exists = redis::cmd("EXISTS").arg("fenced:node").to_owned();
    let is_node = ask::<bool>(connection, &exists).await?.unwrap_or(false);
    Ok(is_node.then(|| {
        Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "it is a node of a Redlock cluster (it has the key fenced:node), and was named alone",
            "a client that acquires a lock on this node alone holds it while another client holds \
             it on the other nodes, and both may have the same token",
            Cure::advice(
                "name all nodes of the cluster: --redis once for each, or FENCED_REDIS with spaces \
                 between them; if it is no longer a node, delete the key",
            ),
        )
    }))
}

/// Checks whether a node may vote.
pub(super) fn membership(view: &View, user: &str) -> Finding {
    if view.state == State::Voting && view.durable == Some(true) {
        return durability(view);
    }
    let cure = match view.state {
        State::Voting => return Finding::ok(CHECK, "it may vote, until it restarts"),
        State::Prepared => "run `lock-client node init` again",
        State::Restarted => "run `lock-client node admit` for it",
        State::NoCluster => {
            "run `lock-client node admit` if the others are in a cluster; otherwise `node init`"
        }
        State::OtherCluster | State::SameServer => "name all nodes of one cluster, and no others",
        State::Unreachable if view.reason.as_deref().is_some_and(locking::is_forbidden) => {
            return no_vote(view, locking::node_permissions(user));
        }
        State::Unreachable => return unreachable(view),
    };
    no_vote(view, Cure::advice(cure))
}

/// Checks that a node that keeps its vote over a restart also keeps every write.
fn durability(view: &View) -> Finding {
    let severity = match view.persistence {
        Some(Persistence::Always) => {
            return Finding::ok(CHECK, "it may vote, and keeps its vote when it restarts");
        }
        Some(Persistence::Unseen) | None => Severity::Unseen,
        Some(_) => Severity::TokenLoss,
    };
    let found = match severity {
        Severity::Unseen => {
            "it keeps its vote when it restarts; whether every write is on disk could not be seen"
        }
        _ => {
            "it keeps its vote when it restarts, but no longer writes every change to disk at once"
        }
    };
    Finding::bad(
        severity,
        CHECK,
        found,
        "if it loses grants that it has answered, and restarts with appendfsync always again, it \
         issues tokens a second time",
        Cure::advice(
            "have it write each grant to disk again, or run `lock-client node admit` for it, which \
             records its present settings",
        ),
    )
}

/// The finding that a node doesn't answer.
pub(super) fn unreachable(view: &View) -> Finding {
    no_vote(
        view,
        Cure::advice(
            "make sure that it runs and answers; if it has no vote then, run `lock-client node \
             admit` for it",
        ),
    )
}

fn no_vote(view: &View, cure: Cure) -> Finding {
    let reason = view.reason.as_deref().unwrap_or("it no longer answers");
    Finding::bad(
        Severity::Warning,
        CHECK,
        format!("it has no vote: {reason}"),
        "the fewer nodes vote, the fewer of them may fail",
        cure,
    )
}

/// Checks whether a majority of the nodes may vote.
pub(super) fn majority(cluster: &Cluster) -> Finding {
    let Cluster { nodes, majority, voting, .. } = cluster;
    let found = format!("{voting} of {nodes} nodes may vote; locks need {majority}");
    if voting >= majority {
        return Finding::ok("majority", found);
    }
    let endangers = "no lock can be acquired";
    let cure = Cure::advice("resolve the membership findings of the nodes");
    Finding::bad(Severity::Unusable, "majority", found, endangers, cure)
}

/// Checks that all nodes are different servers.
pub(super) fn servers(views: &[View]) -> Finding {
    let twice = views.iter().filter(|view| view.state == State::SameServer);
    let twice: Vec<_> = twice.map(|view| view.node.as_str()).collect();
    if twice.is_empty() {
        return Finding::ok("servers", format!("{} different servers", views.len()));
    }
    Finding::bad(
        Severity::Unusable,
        "servers",
        format!("one server is named more than once: {}", twice.join(", ")),
        "one server has several votes: fewer servers than a majority can lose locks and tokens",
        Cure::advice("name each server once, and name all servers"),
    )
}
