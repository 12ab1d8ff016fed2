//! Whether nodes may vote in their cluster (Redlock).

use redis::{RedisResult, aio::ConnectionLike};

use super::{
    connection::ask,
    finding::{Cure, Finding, Severity},
    locking,
};
use lock_client::redlock::operator::{Cluster, Persistence, State, View};

const CHECK: &str = "membership";

/// Whether one Redis that is named alone is a node of a cluster.
///
/// # Errors
/// If the connection is lost.
pub(super) async fn alone(connection: &mut impl ConnectionLike) -> RedisResult<Option<Finding>> {
    let exists = redis::cmd("EXISTS").arg("fenced:node").to_owned();
    let is_node = ask::<bool>(connection, &exists).await?.unwrap_or(false);
    Ok(is_node.then(|| {
        Finding::bad(
            Severity::TokenLoss,
            CHECK,
            "it is a node of a cluster (Redlock: it has the key fenced:node), and was named alone",
            "who takes a lock on this node alone holds it beside one who holds it on the others, and \
             both may have the same token",
            Cure::advice(
                "name all nodes of the cluster: --redis once for each, or FENCED_REDIS with spaces \
                 between; if it is none any more, delete the key",
            ),
        )
    }))
}

/// Whether a node may vote, as far as a user sees.
pub(super) fn membership(view: &View, user: &str) -> Finding {
    if view.state == State::Voting && view.durable == Some(true) {
        return durable(view);
    }
    let cure = match view.state {
        State::Voting => return Finding::ok(CHECK, "it may vote, until it restarts"),
        State::Prepared => "run `lock-client node init` again",
        State::Restarted => "run `lock-client node admit` for it",
        State::NoCluster => {
            "run `lock-client node admit` for it, if the others are in a cluster; else `node init`"
        }
        State::OtherCluster | State::SameServer => "name all nodes of one cluster, and no others",
        State::Unreachable if view.reason.as_deref().is_some_and(locking::is_forbidden) => {
            return no_vote(view, locking::node_permissions(user));
        }
        State::Unreachable => return silence(view),
    };
    no_vote(view, Cure::advice(cure))
}

/// Whether a node that keeps its vote when it restarts has every write on disk until then.
fn durable(view: &View) -> Finding {
    let severity = match view.persistence {
        Some(Persistence::Always) => {
            return Finding::ok(CHECK, "it may vote, and keeps its vote when it restarts");
        }
        Some(Persistence::Unseen) | None => Severity::Unseen,
        Some(_) => Severity::TokenLoss,
    };
    let found = match severity {
        Severity::Unseen => {
            "it keeps its vote when it restarts; whether it has every write on disk could not be seen"
        }
        _ => "it keeps its vote when it restarts, and has no longer every write on disk",
    };
    Finding::bad(
        severity,
        CHECK,
        found,
        "if it loses what it has answered, and comes up with appendfsync always again, it issues \
         tokens a second time",
        Cure::advice(
            "have it write each grant to disk again, or run `lock-client node admit` for it, which notes \
             what it is now",
        ),
    )
}

/// That a node doesn't answer.
pub(super) fn silence(view: &View) -> Finding {
    no_vote(
        view,
        Cure::advice(
            "see that it runs and answers; if it then has no vote, let it in by `lock-client node admit`",
        ),
    )
}

fn no_vote(view: &View, cure: Cure) -> Finding {
    let why = view.reason.as_deref().unwrap_or("it doesn't answer any more");
    Finding::bad(
        Severity::Warning,
        CHECK,
        format!("it has no vote: {why}"),
        "the fewer nodes vote, the fewer of them may fail",
        cure,
    )
}

/// Whether there are enough of them.
pub(super) fn majority(cluster: &Cluster) -> Finding {
    let Cluster { nodes, majority, voting, .. } = cluster;
    let found = format!("{voting} of {nodes} nodes may vote; locks take {majority}");
    if voting >= majority {
        return Finding::ok("majority", found);
    }
    let endangers = "no lock can be taken";
    let cure = Cure::advice("see to the membership of each node");
    Finding::bad(Severity::Unusable, "majority", found, endangers, cure)
}

/// Whether they are different servers.
pub(super) fn servers(views: &[View]) -> Finding {
    let twice = views.iter().filter(|view| view.state == State::SameServer);
    let twice: Vec<_> = twice.map(|view| view.node.as_str()).collect();
    if twice.is_empty() {
        return Finding::ok("servers", format!("{} different ones", views.len()));
    }
    Finding::bad(
        Severity::Unusable,
        "servers",
        format!("one server is named more than once: {}", twice.join(", ")),
        "what is to be lost only with a majority is lost with fewer",
        Cure::advice("name each server once, and all of them"),
    )
}
