//! The state of a cluster and of its nodes.

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;

use super::{
    counters::{self, Counters},
    error::OperatorError,
    fitness::Unfit,
    servers::Servers,
    trial::{Trial, try_vote},
};
use crate::redlock::{
    majority::majority,
    peer::{Peer, PeerError},
    persistence::Persistence,
    record::Standing,
    roster::Roster,
};

/// The state of a cluster and of its nodes.
#[derive(Debug)]
pub struct Inspection {
    /// The members, and then the servers that were named and are no members.
    pub nodes: Vec<View>,
    /// The cluster.
    pub cluster: Cluster,
    /// The addresses of the members; `None` if no roster has a majority of voters.
    pub members: Option<Vec<String>>,
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
    /// Which of the writes that the node has answered are on disk.
    pub persistence: Option<Persistence>,
}

/// The standing of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The node may vote.
    Voting,
    /// The node is a replica, or has one. Its vote must not be relied on.
    Replicated,
    /// The node evicts keys. Its vote must not be relied on.
    Evicting,
    /// The node is part of a Redis Cluster, or does not show whether it is fit. Its vote must not be
    /// relied on.
    Unfit,
    /// The node rejects all votes: it is read-only, its memory is full, or it is busy.
    Rejecting,
    /// The node waits for its admission.
    Waiting,
    /// The node has given up its vote for a new start, which was interrupted.
    Retired,
    /// The node missed a change of the members.
    Behind,
    /// The node has begun a change of the members, which is not decided yet.
    Ahead,
    /// The node restarted after it was admitted, and may have lost counters.
    Restarted,
    /// Another process has the node's seat.
    Replaced,
    /// The node belongs to another cluster.
    OtherCluster,
    /// The node is no member, and belongs to no other cluster.
    NotAMember,
    /// The node belongs to no cluster, or has lost its data.
    NoCluster,
    /// The node is the same server as another node.
    SameServer,
    /// The node does not answer.
    Unreachable,
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
    let mut sight = servers.look(&[]).await;
    let cluster = sight.cluster.clone();
    let newest = sight.newest().map(|(roster, voters)| (roster.clone(), voters));
    let current = newest.as_ref().filter(|(roster, voters)| *voters >= roster.majority());
    let current = current.map(|(roster, _)| roster.clone());
    let roster = newest.map(|(roster, _)| roster);

    // 1. The members, each where its process answers, or at its address.
    let mut places: Vec<Place> = Vec::new();
    let seats = current.iter().flat_map(|roster| &roster.seats);
    for seat in seats {
        let peers = || sight.peers.iter().enumerate();
        let own = peers().filter(|(_, peer)| peer.process == seat.process);
        let own = own.max_by_key(|(_, peer)| servers.has_named(&peer.address));
        let place = own.or_else(|| peers().find(|(_, peer)| peer.address == seat.address));
        let position = place.map(|(position, _)| position);
        places.push(match position {
            Some(position) => {
                let peer = sight.peers.remove(position);
                let state = State::of(&peer, current.as_ref(), true);
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
                let state = match State::of(&peer, roster.as_ref(), current.is_none()) {
                    _ if is_same => State::SameServer,
                    state => state,
                };
                Ok((peer, state))
            }
            None => Err(sight.silence(&url.address)),
        });
    }

    // 3. What they say of themselves.
    let views = places.into_iter().map(async |place| match place {
        Ok((peer, state)) => View::read(peer, state).await,
        Err(error) => (View::unreachable(error), None),
    });
    let (mut nodes, peers): (Vec<View>, Vec<Option<Peer>>) =
        join_all(views).await.into_iter().unzip();
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
    let members =
        current.map(|roster| roster.seats.into_iter().map(|seat| seat.address).collect::<Vec<_>>());
    (Inspection { nodes, cluster, members }, peers)
}

impl View {
    async fn read(peer: Peer, mut state: State) -> (Self, Option<Peer>) {
        let persistence = match peer.persistence().await {
            Ok(persistence) => persistence,
            Err(error) => return (Self::unreachable(error), None),
        };
        let mut reason = state.reason();
        if state == State::Voting {
            (state, reason) = match peer.unfit {
                Some(unfit) => (unfit.into(), Some(unfit.reason().to_owned())),
                None => match try_vote(&peer).await {
                    Ok(Trial::Votes) => (state, None),
                    Ok(Trial::Forbidden(error)) => {
                        (state, Some(format!("no vote was tried: {error}")))
                    }
                    Ok(Trial::Rejected(error)) => {
                        (State::Rejecting, Some(format!("it rejects all votes: {error}")))
                    }
                    Err(error) => return (Self::unreachable(error), None),
                },
            };
        }
        let view = Self {
            node: peer.address.clone(),
            is_named: false,
            state,
            reason,
            cluster: peer.cluster().map(ToOwned::to_owned),
            counters_behind: None,
            lag_ms: Some(peer.lag.as_millis().try_into().unwrap_or(u64::MAX)),
            persistence: Some(persistence),
        };
        (view, Some(peer))
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
            persistence: None,
        }
    }
}

impl State {
    /// The state of a server, which is at the place of a member or not.
    fn of(peer: &Peer, roster: Option<&Roster>, is_member: bool) -> Self {
        match peer.standing(roster) {
            Standing::NoCluster | Standing::Restarted if !is_member => Self::NotAMember,
            Standing::Voting => Self::Voting,
            Standing::Waiting => Self::Waiting,
            Standing::Retired => Self::Retired,
            Standing::Behind => Self::Behind,
            Standing::Ahead => Self::Ahead,
            Standing::Restarted => Self::Restarted,
            Standing::Replaced => Self::Replaced,
            Standing::OtherCluster => Self::OtherCluster,
            Standing::NoCluster => Self::NoCluster,
        }
    }

    /// Why a node in this state has no vote.
    fn reason(self) -> Option<String> {
        let reason = match self {
            Self::Waiting => Standing::Waiting.reason(),
            Self::Retired => Standing::Retired.reason(),
            Self::Behind => Standing::Behind.reason(),
            Self::Ahead => Standing::Ahead.reason(),
            Self::Restarted => Standing::Restarted.reason(),
            Self::Replaced => Standing::Replaced.reason(),
            Self::OtherCluster => Standing::OtherCluster.reason(),
            Self::NoCluster => Standing::NoCluster.reason(),
            Self::NotAMember => {
                "it is no member; `lock-client node admit --instead-of` puts it in place of one"
            }
            Self::SameServer => "it is the same server as another node",
            Self::Voting
            | Self::Replicated
            | Self::Evicting
            | Self::Unfit
            | Self::Rejecting
            | Self::Unreachable => return None,
        };
        Some(reason.to_owned())
    }
}

impl From<Unfit> for State {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Evicting => Self::Evicting,
            Unfit::Replicated => Self::Replicated,
            Unfit::Clustered | Unfit::Unknown => Self::Unfit,
        }
    }
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
