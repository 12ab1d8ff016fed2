//! The state of a cluster and of its nodes.

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;

use super::{
    counters::{self, Counters},
    error::OperatorError,
    peer::{Peer, PeerError},
    servers::Servers,
    trial::{Trial, try_vote},
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

/// The place of a node in an inspection, and who answers there.
type Place = Result<(Peer, State), PeerError>;

pub(super) async fn inspect(servers: &Servers) -> Inspection {
    inspect_peers(servers).await.0
}

pub(super) async fn inspect_with_counters(servers: &Servers) -> Result<Inspection, OperatorError> {
    let (mut inspection, peers) = inspect_peers(servers).await;
    let behind = counters_behind(&peers, &inspection.nodes).await?;
    for (view, behind) in inspection.nodes.iter_mut().zip(behind) {
        view.counters_behind = behind;
    }
    Ok(inspection)
}

/// Inspects all nodes. Also returns the connections to the nodes that answered.
async fn inspect_peers(servers: &Servers) -> (Inspection, Vec<Option<Peer>>) {
    let (inspection, peers, is_outdated) = inspect_once(servers).await;
    if is_outdated {
        // A takeover has changed a record between the look and the trial.
        let (inspection, peers, _) = inspect_once(servers).await;
        return (inspection, peers);
    }
    (inspection, peers)
}

/// Inspects all nodes. Also returns whether a record has changed meanwhile.
async fn inspect_once(servers: &Servers) -> (Inspection, Vec<Option<Peer>>, bool) {
    let mut sight = servers.look(&[], None).await;
    // What only reads may take the only cluster that is seen for the one that is meant.
    let clusters = sight.clusters();
    let only = clusters.first().filter(|_| clusters.len() == 1).map(|&only| only.to_owned());
    sight.cluster = sight.cluster.or(only);
    let cluster = sight.cluster.clone();
    let newest = sight.newest().map(|(roster, voters)| (roster.clone(), voters));
    let current = newest.as_ref().filter(|(roster, voters)| *voters >= roster.majority());
    let current = current.map(|(roster, _)| roster.clone());
    let roster = newest.map(|(roster, _)| roster);

    // 1. The members, each where its process answers, or at its address.
    let mut places: Vec<Place> = Vec::new();
    let seats = current.iter().flat_map(|roster| &roster.seats);
    // A process that has another seat is no second voter.
    let has_seat =
        |process: &String| current.as_ref().is_some_and(|roster| roster.seat_of(process).is_some());
    for seat in seats {
        let peers = || sight.peers.iter().enumerate();
        let own = peers().filter(|(_, peer)| peer.process == seat.process);
        let own = own.max_by_key(|(_, peer)| {
            (servers.has_named(&peer.address), peer.address == seat.address)
        });
        let place = own.or_else(|| {
            peers().find(|(_, peer)| peer.address == seat.address && !has_seat(&peer.process))
        });
        let position = place.map(|(position, _)| position);
        places.push(match position {
            Some(position) => {
                let peer = sight.peers.remove(position);
                let state = peer.state(current.as_ref());
                Ok((peer, state))
            }
            None => Err(sight.silence(&seat.address)),
        });
    }
    // 2. The servers that were named and are no members.
    let members = places.len();
    for url in &servers.named {
        let is_here = |place: &Place| match place {
            Ok((peer, _)) => peer.address == url.address,
            Err(error) => error.address == url.address,
        };
        if places.iter().any(is_here) {
            continue;
        }
        let position = sight.peers.iter().position(|peer| peer.address == url.address);
        places.push(match position {
            Some(position) => {
                let peer = sight.peers.remove(position);
                let is_same =
                    places.iter().flatten().any(|(other, _)| other.process == peer.process);
                let state = match peer.state(roster.as_ref()) {
                    _ if is_same => State::SameServer,
                    // No cluster has a majority of these servers: none of them is their cluster's.
                    _ if roster.is_none() && peer.cluster().is_some() => State::OtherCluster,
                    State::NoCluster | State::Restarted if current.is_some() => State::NotAMember,
                    state => state,
                };
                Ok((peer, state))
            }
            None => Err(sight.silence(&url.address)),
        });
    }

    // 3. Their views.
    let views = places.into_iter().map(async |place| match place {
        Ok((peer, state)) => View::read(peer, state).await,
        Err(error) => (View::unreachable(error), None, false),
    });
    let (mut nodes, mut peers, mut is_outdated) = (Vec::new(), Vec::new(), false);
    for (view, peer, has_changed) in join_all(views).await {
        nodes.push(view);
        peers.push(peer);
        is_outdated |= has_changed;
    }
    for view in &mut nodes {
        view.is_named = servers.has_named(&view.node);
    }
    for view in nodes.iter_mut().skip(members).filter(|_| members > 0) {
        if view.state == State::Unreachable {
            let reason = view.reason.take().unwrap_or_default();
            view.reason = Some(format!("it is no member, and does not answer: {reason}"));
        }
    }
    let number = roster.as_ref().map_or(nodes.len(), |roster| roster.seats.len());
    let cluster = Cluster {
        cluster,
        term: current.as_ref().map(|roster| roster.term),
        nodes: number,
        majority: majority(number),
        voting: nodes.iter().filter(|view| view.state == State::Voting).count(),
        max_ttl_ms: roster.as_ref().map(|roster| roster.max_ttl_ms),
    };
    (Inspection { nodes, cluster }, peers, is_outdated)
}

impl View {
    /// Reads the view of a node. Also returns whether its record has changed since the look.
    async fn read(peer: Peer, mut state: State) -> (Self, Option<Peer>, bool) {
        let (mut reason, mut has_changed) = (state.reason().to_owned(), false);
        if state == State::Voting {
            if let Some(unfit) = peer.unfit {
                (state, reason) = (unfit, unfit.reason().to_owned());
            } else {
                match try_vote(&peer).await {
                    Ok(Trial::Votes) => reason = String::new(),
                    Ok(Trial::Forbidden(error)) => reason = format!("no vote was tried: {error}"),
                    Ok(Trial::Rejected(error)) => (state, reason) = rejecting(&error),
                    Ok(Trial::Outdated(error)) => {
                        (state, reason) = rejecting(&error);
                        has_changed = true;
                    }
                    Err(error) => return (Self::unreachable(error), None, false),
                }
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
        (view, Some(peer), has_changed)
    }

    fn unreachable(error: PeerError) -> Self {
        Self {
            node: error.address,
            is_named: false,
            state: State::Unreachable,
            reason: Some(error.reason),
            cluster: None,
            counters_behind: None,
            lag_ms: None,
        }
    }
}

fn rejecting(error: &str) -> (State, String) {
    (State::Rejecting, format!("{}: {error}", State::Rejecting.reason()))
}

/// Counts for each node the names whose counter is below the highest of all voting nodes. `None`
/// for a node that does not answer, and if no node may vote.
async fn counters_behind(
    peers: &[Option<Peer>],
    views: &[View],
) -> Result<Vec<Option<u64>>, PeerError> {
    let votes = |node: usize| views[node].state == State::Voting;
    let voters: Vec<_> = (0..views.len()).filter(|&node| votes(node)).collect();
    if voters.is_empty() {
        return Ok(vec![None; peers.len()]);
    }
    let mut behind: Vec<_> = peers.iter().map(|peer| peer.as_ref().map(|_| 0)).collect();
    for (nth, &voter) in voters.iter().enumerate() {
        let mut counters = Counters::new();
        loop {
            let peer = peers[voter].as_ref().expect("a voting node has answered");
            let Some(keys) = counters.next(peer).await? else { break };
            let values = peers.iter().map(|peer| read(peer.as_ref(), &keys));
            let values = try_join_all(values).await?.into_iter().map(Vec::into_iter);
            let mut values: Vec<_> = values.collect();
            for _ in &keys {
                let of_name: Vec<_> =
                    values.iter_mut().map(|of_node| of_node.next().flatten()).collect();
                // A name that an earlier voter knows was counted in that voter's scan.
                if voters[..nth].iter().any(|&earlier| of_name[earlier].is_some()) {
                    continue;
                }
                let highest = voters.iter().filter_map(|&voter| of_name[voter]).max();
                for (behind, counter) in behind.iter_mut().zip(of_name) {
                    *behind = behind.map(|behind| behind + u64::from(counter < highest));
                }
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
