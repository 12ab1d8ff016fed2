//! Whether the nodes of a Redlock cluster may vote.

use lock_client::{
    redis::Keys,
    redlock::operator::{Cluster, State, View},
};
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
    let exists = redis::cmd("EXISTS").arg(Keys::NODE).to_owned();
    let is_node = ask::<bool>(connection, &exists).await?.unwrap_or(false);
    Ok(is_node.then(|| {
        Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "it is a node of a Redlock cluster (it has the key fenced:node), and was named alone",
            "a client that acquires a lock on this node alone holds it while another client holds \
             it on the other nodes, and both may have the same token",
            Cure::advice(
                "name all nodes of the cluster: --locks once for each, or FENCED_LOCKS with spaces \
                 between them; if it is no longer a node, delete the key",
            ),
        )
    }))
}

/// Checks whether a node may vote.
pub(super) fn membership(view: &View, user: &str) -> Finding {
    let cure = match view.state {
        State::Voting => return Finding::ok(CHECK, "it may vote, until it restarts"),
        State::Prepared => "run `lock-client node init` again",
        State::Restarted | State::OtherEpoch => {
            "run `lock-client node admit` for it, or `node admit --watch` for all"
        }
        State::Removed => "name the new members instead, and stop it",
        State::NoCluster => {
            "run `lock-client node admit` if the others are in a cluster; otherwise `node init`"
        }
        State::NotAMember => "name all members, and no others",
        State::OtherCluster | State::SameServer => "name all nodes of one cluster, and no others",
        State::Unreachable if view.reason.as_deref().is_some_and(locking::is_forbidden) => {
            return no_vote(view, locking::node_permissions(user));
        }
        State::Unreachable => return unreachable(view),
    };
    no_vote(view, Cure::advice(cure))
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

/// The finding that a member is not named.
pub(super) fn not_named() -> Finding {
    Finding::bad(
        Severity::Warning,
        CHECK,
        "it is a member, and --locks does not name it",
        "a client that starts while too many of the named nodes are down finds no majority",
        Cure::advice("name all members: `lock-client node status` shows them"),
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
