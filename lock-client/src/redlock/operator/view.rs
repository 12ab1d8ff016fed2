//! The state of a cluster and of its nodes.

use std::collections::BTreeSet;

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;

use super::{
    Operator,
    counters::{self, Counters},
    error::OperatorError,
    peer::{Peer, PeerError},
    servers::Sight,
    trial::try_vote,
};
use crate::redlock::{majority::majority, roster::Roster, state::State};

/// The state of a cluster and of its nodes.
#[derive(Debug)]
pub struct Inspection {
    /// The members, and then the servers that were named and are no members.
    pub nodes: Vec<View>,
    /// The cluster.
    pub cluster: Cluster,
}

/// The state of one node.
#[derive(Debug, Serialize)]
pub struct View {
    /// The node's address, without a password.
    pub node: String,
    /// Whether the operator named the node.
    pub is_named: bool,
    /// The node's standing in the cluster.
    pub state: State,
    /// Why the node has no vote, or why none was tried.
    pub reason: Option<String>,
    /// The id of the cluster to which the node's data belong.
    pub cluster: Option<String>,
    /// The id of a cluster for which a start has prepared the node, and was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_for: Option<String>,
    /// The number of names whose counter is missing on the node, or below the highest of all voting
    /// nodes.
    pub counters_behind: Option<u64>,
    /// The time that the node took to answer.
    pub lag_ms: Option<u64>,
    /// Whether its record has changed since the look.
    #[serde(skip)]
    has_changed: bool,
}

/// The state of a cluster, as its nodes report it.
#[derive(Debug, Serialize)]
pub struct Cluster {
    /// The cluster's id; `None` if no node belongs to a cluster.
    pub cluster: Option<String>,
    /// The term of the current roster: 1, and 1 more for each process that took a seat. `None` if no
    /// roster has a majority of voters.
    pub term: Option<u64>,
    /// The number of members.
    pub nodes: usize,
    /// The number of nodes that make a majority.
    pub majority: usize,
    /// The number of nodes that may vote.
    pub voting: usize,
    /// The longest ttl that the cluster grants.
    pub max_ttl_ms: Option<u64>,
}

/// What an inspection has seen.
struct Seen {
    sight: Sight,
    inspection: Inspection,
}

pub(super) async fn inspect(operator: &Operator) -> Inspection {
    look(operator).await.inspection
}

pub(super) async fn inspect_with_counters(
    operator: &Operator,
) -> Result<Inspection, OperatorError> {
    let Seen { sight, mut inspection } = look(operator).await;
    count_behind(&sight, &mut inspection.nodes).await?;
    Ok(inspection)
}

async fn look(operator: &Operator) -> Seen {
    let seen = look_once(operator).await;
    // A takeover may have changed a record between the look and the trial.
    let is_outdated = seen.inspection.nodes.iter().any(|view| view.has_changed);
    if is_outdated { look_once(operator).await } else { seen }
}

async fn look_once(operator: &Operator) -> Seen {
    let mut sight = operator.look(&[], None).await;
    // A start that was interrupted may have prepared most servers for a cluster that never was. Then the
    // cluster is that of their data before.
    if sight.newest().is_none_or(|(_, voters)| voters == 0) {
        let last = operator.cluster(&sight, None, Peer::last_roster);
        // What only reads may take the only cluster that is seen for the one that is meant.
        let rosters = sight.peers.iter().filter_map(Peer::last_roster);
        let clusters: BTreeSet<_> = rosters.map(|roster| &roster.cluster).collect();
        let only = clusters.first().filter(|_| clusters.len() == 1).map(|&only| only.clone());
        sight.cluster = last.or(only).or(sight.cluster.take());
    }
    let newest = sight.newest();
    let roster = newest.map(|(roster, _)| roster);
    let current = newest.filter(|(roster, voters)| *voters >= roster.majority());
    let current = current.map(|(roster, _)| roster);

    // 1. The members, each where its process answers, or at its address.
    let members =
        current.into_iter().flat_map(|roster| roster.seats.iter().map(move |seat| (roster, seat)));
    let members = members.map(|(roster, seat)| {
        let peer = operator.at_seat(&sight, roster, seat);
        peer.map(|peer| (peer, peer.state(current)))
    });
    let mut places: Vec<Result<(&Peer, State), PeerError>> = members.collect();
    let members = places.len();
    // 2. The servers that were named and are no members.
    for url in &operator.named {
        let is_here = |place: &Result<(&Peer, State), PeerError>| match place {
            Ok((peer, _)) => peer.address == url.address,
            Err(error) => error.address == url.address,
        };
        if places.iter().any(is_here) {
            continue;
        }
        let is_same =
            |peer: &Peer| places.iter().flatten().any(|(other, _)| other.process == peer.process);
        let place = sight.at(&url.address).map(|peer| {
            let state = match peer.state(roster) {
                _ if is_same(peer) => State::SameServer,
                _ if peer.is_prepared_only() => State::Prepared,
                // No cluster has a majority of these servers: none of them is their cluster's.
                _ if roster.is_none() && peer.cluster().is_some() => State::OtherCluster,
                State::NoCluster | State::Restarted if current.is_some() => State::NotAMember,
                state => state,
            };
            (peer, state)
        });
        places.push(place.ok_or_else(|| {
            let mut silence = sight.silence(&url.address);
            if members > 0 {
                silence.reason =
                    format!("it is no member, and does not answer: {}", silence.reason);
            }
            silence
        }));
    }

    // 3. Their views.
    let views = places.into_iter().map(async |place| match place {
        Ok((peer, state)) => View::read(peer, state).await,
        Err(error) => View::of_silent(error),
    });
    let mut nodes = join_all(views).await;
    for view in &mut nodes {
        view.is_named = operator.has_named(&view.node);
    }
    let number = roster.map_or(nodes.len(), |roster| roster.seats.len());
    let cluster = Cluster {
        cluster: sight.cluster.clone(),
        term: current.map(|roster| roster.term),
        nodes: number,
        majority: majority(number),
        voting: nodes.iter().filter(|view| view.state == State::Voting).count(),
        max_ttl_ms: roster.map(|roster| roster.max_ttl_ms),
    };
    Seen { sight, inspection: Inspection { nodes, cluster } }
}

impl View {
    /// Reads the view of a node.
    async fn read(peer: &Peer, mut state: State) -> Self {
        let (mut reason, mut has_changed) = (state.reason().to_owned(), false);
        if state == State::Voting {
            let tried = match peer.unfit {
                Some(unfit) => Ok((unfit, unfit.reason().to_owned(), false)),
                None => try_vote(peer).await,
            };
            match tried {
                Ok(tried) => (state, reason, has_changed) = tried,
                Err(error) => return Self::of_silent(error),
            }
        }
        let cluster = |roster: Option<&Roster>| roster.map(|roster| roster.cluster.clone());
        Self {
            node: peer.address.clone(),
            is_named: false,
            state,
            reason: Some(reason).filter(|reason| !reason.is_empty()),
            cluster: cluster(peer.last_roster()),
            prepared_for: cluster(peer.roster().filter(|_| peer.is_prepared_only())),
            counters_behind: None,
            lag_ms: Some(peer.lag.as_millis().try_into().unwrap_or(u64::MAX)),
            has_changed,
        }
    }

    fn of_silent(error: PeerError) -> Self {
        Self {
            node: error.address,
            is_named: false,
            state: error.state,
            reason: Some(error.reason),
            cluster: None,
            prepared_for: None,
            counters_behind: None,
            lag_ms: None,
            has_changed: false,
        }
    }
}

/// Counts for each node the names whose counter is below the highest of all voting nodes. Nothing is counted
/// for a node that does not answer, and if no node may vote. No names are kept: one that the scan of a node
/// returns twice counts twice.
async fn count_behind(sight: &Sight, views: &mut [View]) -> Result<(), PeerError> {
    let peer = |view: &View| sight.at(&view.node).filter(|_| view.lag_ms.is_some());
    let peers: Vec<_> = views.iter().map(peer).collect();
    let votes = |node: &usize| views[*node].state == State::Voting;
    let voters: Vec<_> = (0..views.len()).filter(votes).collect();
    for (view, peer) in views.iter_mut().zip(&peers).filter(|_| !voters.is_empty()) {
        view.counters_behind = peer.map(|_| 0);
    }
    for &voter in &voters {
        let mut counters = Counters::new();
        let peer = peers[voter].expect("a voting node has answered");
        while let Some(keys) = counters.next(peer).await? {
            let values = try_join_all(peers.iter().map(|peer| read(*peer, &keys))).await?;
            for name in 0..keys.len() {
                // Each name is counted in the scan of the first voter that has a number for it.
                let has_number = |&&node: &&usize| values[node][name].is_some();
                if voters.iter().find(has_number) != Some(&voter) {
                    continue;
                }
                let highest = voters.iter().filter_map(|&voter| values[voter][name]).max();
                for (view, values) in views.iter_mut().zip(&values) {
                    let is_behind = u64::from(values[name] < highest);
                    view.counters_behind = view.counters_behind.map(|behind| behind + is_behind);
                }
            }
        }
    }
    Ok(())
}

async fn read(peer: Option<&Peer>, keys: &[String]) -> Result<Vec<Option<u64>>, PeerError> {
    match peer {
        Some(peer) => counters::read(peer, keys).await,
        None => Ok(vec![None; keys.len()]),
    }
}
