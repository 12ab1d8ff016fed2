//! A Redlock cluster: each node by itself, whether it may vote, and all nodes together.

use std::time::Duration;

use doctor::{Check, Cure, Report, Verdict, redis::Server};
use fence::ResourceName;
use lock_client::{
    Locks, Ttl,
    redis::lacks_permission,
    redlock::{
        majority,
        operator::{Cluster, Operator, State, View},
    },
};
use redis::RedisError;

use super::{
    locking,
    redis::{connect, waking},
};
use crate::failure::Failure;

/// The ttl of the lock that is acquired as a test, if the cluster grants that much.
const TTL: Duration = Duration::from_secs(10);
/// What a node loses when it restarts.
const OF_A_RESTART: [&str; 4] =
    ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "aof_last_write_status"];
/// What makes a node lose counters while it runs.
const OF_A_RUNNING_NODE: [&str; 2] = ["replicas", "maxmemory-policy"];
const MEMBERSHIP: &str = "membership";

/// Examines each node, and all of them together.
pub(super) async fn examine(
    urls: &[&str],
    locks: &Locks,
    operator: &Operator,
) -> Result<Report, Failure> {
    let seen = operator.inspect().await;
    let name = locking::unused_name();
    let longest = seen.cluster.max_ttl_ms.map_or(TTL, Duration::from_millis);
    let ttl =
        Ttl::new(TTL.min(longest)).map_err(|error| Failure::unavailable(error.to_string()))?;
    let mut checks = vec![votes(&seen.cluster), servers(&seen.nodes)];
    if seen.cluster.voting >= seen.cluster.majority {
        checks.push(locking::majority_locking(locks, &name, ttl).await);
    }
    let mut nodes = Vec::new();
    for view in &seen.nodes {
        let url = urls.iter().find(|url| is_at(url, view));
        let node = match url {
            Some(url) => examine_node(url, view, operator, &name, ttl).await,
            None => Report::new(
                format!("{}: not examined, because --locks does not name it", view.node),
                None,
                vec![not_named()],
            ),
        };
        nodes.push(node);
    }
    let dispensable_nodes = nodes.len() - majority(nodes.len());
    let all = Report::new(format!("all {} nodes together", nodes.len()), None, checks);
    Ok(Report { nodes, dispensable_nodes, ..all })
}

/// Whether a URL names this node.
fn is_at(url: &str, view: &View) -> bool {
    lock_client::redis::Server::open(url).is_ok_and(|server| server.to_string() == view.node)
}

async fn examine_node(
    url: &str,
    view: &View,
    operator: &Operator,
    name: &ResourceName,
    ttl: Ttl,
) -> Report {
    if let Ok(mut server) = connect(url).await {
        let locked = match view.state {
            State::Voting
            | State::Replicated
            | State::Evicting
            | State::Clustered
            | State::Unknown
            | State::Rejecting => Some(operator.try_lock_on(&view.node, name, ttl).await),
            _ => None,
        };
        if let Ok(report) = run_checks(&mut server, view, locked, name).await {
            return report;
        }
    }
    let system = format!("{}: a server that does not answer", view.node);
    Report::new(system, None, vec![unreachable(view)])
}

/// Runs the checks of one node. `locked` is the result of a test lock on it.
async fn run_checks(
    server: &mut Server,
    view: &View,
    locked: Option<Result<(), String>>,
    name: &ResourceName,
) -> Result<Report, RedisError> {
    let mut report = doctor::redis::examine(server).await?;
    report.system = format!("{}: {}", view.node, report.system);
    let user = report.user.clone().unwrap_or_default();
    report.checks = report.checks.into_iter().map(as_of_a_node).collect();
    report.checks.insert(0, membership(view, &user));
    report.checks.push(doctor::redis::connections(&mut server.commands).await?);
    report.checks.push(doctor::redis::proxy(server).await?);
    let permissions = || locking::node_permissions(&user);
    if let Some(locked) = locked {
        let commands = &mut server.commands;
        let cleaned = locking::clean_up(commands, locked, name, &user, permissions()).await?;
        report.checks.push(cleaned);
    }
    report.checks.push(waking(server, name, &user, permissions()).await?);
    Ok(report)
}

/// A restarted process has no vote. So what a node loses then matters only if a majority restarts.
fn as_of_a_node(check: Check) -> Check {
    if OF_A_RESTART.contains(&&*check.name) {
        let why = "no token, because a restarted node has no vote until it is admitted; but if a majority \
                   restarts at once, the issued tokens are on no disk, and the counters start again at the \
                   clients' clocks";
        check.lowered(why)
    } else if OF_A_RUNNING_NODE.contains(&&*check.name) && check.cure.is_some() {
        // A running process may have lost counters already.
        let cure = "mend it, also in redis.conf; then restart the node, and let it be admitted \
                    (`lock-client node admit`)";
        Check { cure: Some(cure.into()), ..check }
    } else {
        check
    }
}

/// Checks whether a node may vote.
fn membership(view: &View, user: &str) -> Check {
    let cure = match view.state {
        // Other checks report its replicas, and that it evicts keys.
        State::Voting | State::Replicated | State::Evicting => {
            return Check::ok(MEMBERSHIP, "it may vote, until it restarts");
        }
        State::Clustered | State::Unknown => "put a single Redis or Valkey in its place",
        State::Rejecting => "resolve the error that it returned",
        State::Waiting | State::Restarted | State::Behind | State::Ahead => {
            "run `lock-client node admit` for it, or `node admit --watch` for all"
        }
        State::Retired => "run `lock-client node init` again with the same options",
        State::Prepared => {
            "run `lock-client node init` again with the same options, or `node admit` for it if a majority \
             votes"
        }
        State::Replaced => "name the new member instead, and stop it",
        State::NoCluster => {
            "run `lock-client node admit` if the others are in a cluster; otherwise `node init`"
        }
        State::NotAMember => "name all members, and no others",
        State::OtherCluster | State::SameServer => "name all nodes of one cluster, and no others",
        State::Unreachable | State::Unreadable
            if view.reason.as_deref().is_some_and(lacks_permission) =>
        {
            return no_vote(view, locking::node_permissions(user));
        }
        State::Unreachable | State::Unreadable => return unreachable(view),
    };
    no_vote(view, cure)
}

/// A node that doesn't answer.
fn unreachable(view: &View) -> Check {
    no_vote(
        view,
        "make sure that it runs and answers; if it has no vote then, run `lock-client node admit` for it",
    )
}

/// A member that is not named.
fn not_named() -> Check {
    Check::bad(
        Verdict::Warning,
        MEMBERSHIP,
        "it is a member, and --locks does not name it",
        "a client that starts while too many of the named nodes are down finds no majority",
        "name all members: `lock-client node status` shows them",
    )
}

fn no_vote(view: &View, cure: impl Into<Cure>) -> Check {
    let reason = view.reason.as_deref().unwrap_or("it no longer answers");
    Check::bad(
        Verdict::Warning,
        MEMBERSHIP,
        format!("it has no vote: {reason}"),
        "the fewer nodes vote, the fewer of them may fail",
        cure,
    )
}

/// Checks whether a majority of the nodes may vote.
fn votes(Cluster { nodes, majority, voting, .. }: &Cluster) -> Check {
    Check::ok("majority", format!("{voting} of {nodes} nodes may vote; locks need {majority}"))
        .unless(
            voting >= majority,
            Verdict::Unfit,
            "no lock can be acquired",
            "resolve the membership of the nodes",
        )
}

/// Checks that all nodes are different servers.
fn servers(views: &[View]) -> Check {
    let twice = views.iter().filter(|view| view.state == State::SameServer);
    let twice: Vec<_> = twice.map(|view| view.node.as_str()).collect();
    Check::ok("servers", format!("{} nodes; named more than once: {twice:?}", views.len())).unless(
        twice.is_empty(),
        Verdict::Unfit,
        "one server has several votes: fewer servers than a majority can lose locks and tokens",
        "name each server once, and name all servers",
    )
}
