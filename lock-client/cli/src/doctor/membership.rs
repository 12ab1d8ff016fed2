//! Whether the nodes of a Redlock cluster may vote.

use doctor::{Check, Cure, Verdict};
use lock_client::redlock::operator::{Cluster, State, View};

use super::locking;

const NAME: &str = "membership";

/// Checks whether a node may vote.
pub(super) fn membership(view: &View, user: &str) -> Check {
    let cure = match view.state {
        State::Voting => return Check::ok(NAME, "it may vote, until it restarts"),
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
    no_vote(view, cure)
}

/// The check says that a node doesn't answer.
pub(super) fn unreachable(view: &View) -> Check {
    no_vote(
        view,
        "make sure that it runs and answers; if it has no vote then, run `lock-client node admit` for it",
    )
}

/// The check says that a member is not named.
pub(super) fn not_named() -> Check {
    Check::bad(
        Verdict::Warning,
        NAME,
        "it is a member, and --locks does not name it",
        "a client that starts while too many of the named nodes are down finds no majority",
        "name all members: `lock-client node status` shows them",
    )
}

fn no_vote(view: &View, cure: impl Into<Cure>) -> Check {
    let reason = view.reason.as_deref().unwrap_or("it no longer answers");
    Check::bad(
        Verdict::Warning,
        NAME,
        format!("it has no vote: {reason}"),
        "the fewer nodes vote, the fewer of them may fail",
        cure,
    )
}

/// Checks whether a majority of the nodes may vote.
pub(super) fn majority(cluster: &Cluster) -> Check {
    let Cluster { nodes, majority, voting, .. } = cluster;
    let found = format!("{voting} of {nodes} nodes may vote; locks need {majority}");
    if voting >= majority {
        return Check::ok("majority", found);
    }
    let endangers = "no lock can be acquired";
    let cure = "resolve the membership of the nodes";
    Check::bad(Verdict::Unfit, "majority", found, endangers, cure)
}

/// Checks that all nodes are different servers.
pub(super) fn servers(views: &[View]) -> Check {
    let twice = views.iter().filter(|view| view.state == State::SameServer);
    let twice: Vec<_> = twice.map(|view| view.node.as_str()).collect();
    if twice.is_empty() {
        return Check::ok("servers", format!("{} different servers", views.len()));
    }
    Check::bad(
        Verdict::Unfit,
        "servers",
        format!("one server is named more than once: {}", twice.join(", ")),
        "one server has several votes: fewer servers than a majority can lose locks and tokens",
        "name each server once, and name all servers",
    )
}
