//! The state of a cluster and of its nodes.

use std::collections::BTreeSet;

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;

use super::{
    Operator,
    counters::{self, BATCH, Counters},
    error::OperatorError,
    peer::{Peer, PeerError},
    servers::Sight,
    trial::try_vote,
};
use crate::redlock::{majority::majority, state::State};

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
    /// The id of the cluster in the node's record.
    pub cluster: Option<String>,
    /// The number of names whose counter is missing on the node, or below the highest of all voting
    /// nodes.
    pub counters_behind: Option<u64>,
    /// The time that the node took to answer.
    pub lag_ms: Option<u64>,
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
    /// The peer of each node; `None` if it does not answer.
    peers: Vec<Option<usize>>,
    /// Whether a record has changed meanwhile.
    is_outdated: bool,
}

pub(super) async fn inspect(operator: &Operator) -> Inspection {
    look(operator).await.inspection
}

pub(super) async fn inspect_with_counters(
    operator: &Operator,
) -> Result<Inspection, OperatorError> {
    let Seen { sight, mut inspection, peers, .. } = look(operator).await;
    let peers: Vec<_> = peers.iter().map(|peer| Some(&sight.peers[(*peer)?])).collect();
    let behind = counters_behind(&peers, &inspection.nodes).await?;
    for (view, behind) in inspection.nodes.iter_mut().zip(behind) {
        view.counters_behind = behind;
    }
    Ok(inspection)
}

async fn look(operator: &Operator) -> Seen {
    let seen = look_once(operator).await;
    // A takeover may have changed a record between the look and the trial.
    if seen.is_outdated { look_once(operator).await } else { seen }
}

async fn look_once(operator: &Operator) -> Seen {
    let mut sight = operator.look(&[], None).await;
    // What only reads may take the only cluster that is seen for the one that is meant.
    let clusters = sight.clusters();
    let only = clusters.first().filter(|_| clusters.len() == 1).map(|&only| only.to_owned());
    sight.cluster = sight.cluster.or(only);
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
        Err(error) => (View::of_silent(error), false),
    });
    let (mut nodes, mut peers, mut is_outdated) = (Vec::new(), Vec::new(), false);
    for (mut view, has_changed) in join_all(views).await {
        view.is_named = operator.has_named(&view.node);
        let is_here = |peer: &Peer| view.lag_ms.is_some() && peer.address == view.node;
        peers.push(sight.peers.iter().position(is_here));
        nodes.push(view);
        is_outdated |= has_changed;
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
    Seen { inspection: Inspection { nodes, cluster }, peers, is_outdated, sight }
}

impl View {
    /// Reads the view of a node. Also returns whether its record has changed since the look.
    async fn read(peer: &Peer, mut state: State) -> (Self, bool) {
        let (mut reason, mut has_changed) = (state.reason().to_owned(), false);
        if state == State::Voting {
            let tried = match peer.unfit {
                Some(unfit) => Ok((unfit, unfit.reason().to_owned(), false)),
                None => try_vote(peer).await,
            };
            match tried {
                Ok(tried) => (state, reason, has_changed) = tried,
                Err(error) => return (Self::of_silent(error), false),
            }
        }
        let view = Self {
            node: peer.address.clone(),
            is_named: false,
            state,
            reason: Some(reason).filter(|reason| !reason.is_empty()),
            cluster: peer.cluster().map(ToOwned::to_owned),
            counters_behind: None,
            lag_ms: Some(peer.lag.as_millis().try_into().unwrap_or(u64::MAX)),
        };
        (view, has_changed)
    }

    fn of_silent(error: PeerError) -> Self {
        Self {
            node: error.address,
            is_named: false,
            state: error.state,
            reason: Some(error.reason),
            cluster: None,
            counters_behind: None,
            lag_ms: None,
        }
    }
}

/// Counts for each node the names whose counter is below the highest of all voting nodes. `None`
/// for a node that does not answer, and if no node may vote.
async fn counters_behind(
    peers: &[Option<&Peer>],
    views: &[View],
) -> Result<Vec<Option<u64>>, PeerError> {
    let votes = |node: usize| views[node].state == State::Voting;
    let voters: Vec<_> = (0..views.len()).filter(|&node| votes(node)).collect();
    if voters.is_empty() {
        return Ok(vec![None; peers.len()]);
    }
    let mut names = BTreeSet::new();
    for &voter in &voters {
        let mut counters = Counters::new();
        let peer = peers[voter].expect("a voting node has answered");
        while let Some(keys) = counters.next(peer).await? {
            names.extend(keys);
        }
    }
    let names: Vec<_> = names.into_iter().collect();
    let mut behind: Vec<_> = peers.iter().map(|peer| peer.map(|_| 0)).collect();
    for keys in names.chunks(BATCH) {
        let values = try_join_all(peers.iter().map(|peer| read(*peer, keys))).await?;
        for name in 0..keys.len() {
            let highest = voters.iter().filter_map(|&voter| values[voter][name]).max();
            for (behind, values) in behind.iter_mut().zip(&values) {
                *behind = behind.map(|behind| behind + u64::from(values[name] < highest));
            }
        }
    }
    Ok(behind)
}

async fn read(peer: Option<&Peer>, keys: &[String]) -> Result<Vec<Option<u64>>, PeerError> {
    match peer {
        Some(peer) => counters::read(peer, keys).await,
        None => Ok(vec![None; keys.len()]),
    }
}
