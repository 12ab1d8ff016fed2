//! The state of a cluster and of its nodes.

use std::collections::HashSet;

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;

use super::{
    counters::{self, Counters},
    error::OperatorError,
    fitness::Unfit,
    places::{Answer, Places},
    trial::try_vote,
};
use crate::redlock::{
    epoch::Epoch,
    majority::majority,
    membership::Standing,
    peer::{Peer, PeerError, largest_cluster},
    persistence::Persistence,
};

/// The state of a cluster and of its nodes.
#[derive(Debug)]
pub struct Inspection {
    /// The members, and then the servers that were named and are no members.
    pub nodes: Vec<View>,
    /// The cluster.
    pub cluster: Cluster,
    /// The addresses of the members; `None` if a majority of them votes in no epoch.
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
    /// Why the node has no vote; `None` if it has one.
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
    /// The node rejects all votes: it is read-only, or its memory is full.
    Rejecting,
    /// The node restarted after it was admitted, and may have lost counters.
    Restarted,
    /// The cluster was not started completely.
    Prepared,
    /// The node missed a change of the members.
    OtherEpoch,
    /// The node is no member any more.
    Removed,
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
    /// The number of the current epoch: 1, and 1 more for each change of the members. `None` if a
    /// majority of the members votes in none.
    pub epoch: Option<u64>,
    /// The number of members.
    pub nodes: usize,
    /// The number of nodes that make a majority.
    pub majority: usize,
    /// The number of nodes that may vote.
    pub voting: usize,
    /// The longest ttl that the cluster grants.
    pub max_ttl_ms: Option<u64>,
}

pub(super) async fn inspect(places: &Places) -> Inspection {
    inspect_peers(places).await.0
}

pub(super) async fn inspect_with_counters(places: &Places) -> Result<Inspection, OperatorError> {
    let (mut inspection, mut peers) = inspect_peers(places).await;
    let behind = counters_behind(&mut peers, &inspection.nodes).await?;
    for (view, behind) in inspection.nodes.iter_mut().zip(behind) {
        view.counters_behind = behind;
    }
    Ok(inspection)
}

/// Inspects all nodes. Also returns the connections to the nodes that answered.
async fn inspect_peers(places: &Places) -> (Inspection, Vec<Option<Peer>>) {
    let answers = places.connect_all().await;
    let epoch = answers.epoch;
    let members = answers.members.len();
    let peers: Vec<_> = answers.members.into_iter().chain(answers.others).collect();
    let cluster = match &epoch {
        Some(epoch) => Some(epoch.cluster.clone()),
        None => largest_cluster(peers.iter().flatten()),
    };
    // A change that is half done leaves votes in two epochs. The later one will count.
    let voting = peers
        .iter()
        .flatten()
        .filter(|peer| peer.standing == Standing::Voting && peer.cluster() == cluster.as_deref());
    let voted = voting.filter_map(|peer| Some(&peer.record.as_ref()?.epoch));
    let latest = epoch.clone().or_else(|| voted.max_by_key(|epoch| epoch.number).cloned());
    let votes = |peer: &&Peer| latest.as_ref().is_some_and(|epoch| peer.votes_in(epoch));
    let voters = peers.iter().flatten().filter(votes).map(|peer| &peer.run_id);
    let voting = voters.collect::<HashSet<_>>().len();
    let nodes_in_all = latest.as_ref().map_or(members, |epoch| epoch.members.len());
    let mut servers = HashSet::new();
    let state = |(place, answer): (usize, &Answer)| match answer {
        Err(_) => State::Unreachable,
        Ok(peer) if !servers.insert(peer.run_id.clone()) => State::SameServer,
        Ok(peer) if peer.record.is_some() && peer.cluster() != cluster.as_deref() => {
            State::OtherCluster
        }
        // A majority says who the members are.
        Ok(peer) if peer.record.is_none() && place >= members => State::NotAMember,
        Ok(peer) => State::from(peer.standing),
    };
    let states: Vec<_> = peers.iter().enumerate().map(state).collect();
    let undecided = undecided_members(peers.iter().flatten(), epoch.as_ref());
    let views = peers.into_iter().zip(states).map(async |(peer, state)| match peer {
        Ok(peer) => View::read(peer, state).await,
        Err(error) => (View::unreachable(error), None),
    });
    let (mut nodes, peers): (Vec<View>, Vec<Option<Peer>>) =
        join_all(views).await.into_iter().unzip();
    let is_useless =
        |view: &&View| matches!(view.state, State::Replicated | State::Evicting | State::Rejecting);
    let voting = voting.saturating_sub(nodes.iter().filter(is_useless).count());
    for (place, view) in nodes.iter_mut().enumerate() {
        view.is_named = places.has_named(&view.node);
        view.explain(place < members, &undecided);
    }
    let members = peers.iter().flatten().filter(|peer| peer.cluster() == cluster.as_deref());
    let longest = members.filter_map(|peer| Some(peer.record.as_ref()?.epoch.max_ttl_ms)).max();
    let cluster = Cluster {
        cluster,
        epoch: epoch.as_ref().map(|epoch| epoch.number),
        nodes: nodes_in_all,
        majority: majority(nodes_in_all),
        voting,
        max_ttl_ms: longest,
    };
    (Inspection { nodes, cluster, members: epoch.map(|epoch| epoch.members) }, peers)
}

/// Returns the members after a change that is under way, or was interrupted.
fn undecided_members<'a>(
    peers: impl Iterator<Item = &'a Peer>,
    current: Option<&Epoch>,
) -> HashSet<String> {
    let is_later = |epoch: &Epoch| current.is_none_or(|current| epoch.number > current.number);
    let records = peers.filter_map(|peer| peer.record.as_ref());
    let undecided = records.filter(|record| !record.is_decided && is_later(&record.epoch));
    undecided.flat_map(|record| record.epoch.members.iter().cloned()).collect()
}

impl View {
    /// Explains why a server has no vote, if the others know better than its own record.
    fn explain(&mut self, is_member: bool, undecided: &HashSet<String>) {
        match self.state {
            State::NoCluster | State::NotAMember if undecided.contains(&self.node) => {
                let reason = "a change that was interrupted adds it: run `lock-client node change` \
                              again";
                self.reason = Some(reason.to_owned());
            }
            State::NotAMember => {
                self.reason = Some("it is no member; `lock-client node change` adds it".to_owned());
            }
            State::Unreachable if !is_member => {
                let reason = self.reason.take().unwrap_or_default();
                self.reason = Some(format!("it is no member, and does not answer: {reason}"));
            }
            _ => {}
        }
    }

    async fn read(mut peer: Peer, mut state: State) -> (Self, Option<Peer>) {
        let persistence = match peer.persistence().await {
            Ok(persistence) => persistence,
            Err(error) => return (Self::unreachable(error), None),
        };
        let mut problem = None;
        if state == State::Voting {
            (state, problem) = match peer.unfitness().await {
                Ok(None) => match try_vote(&mut peer).await {
                    Ok(None) => (state, None),
                    Ok(Some(error)) => {
                        (State::Rejecting, Some(format!("it rejects all votes: {error}")))
                    }
                    Err(error) => return (Self::unreachable(error), None),
                },
                Ok(Some(unfit)) => (unfit.into(), Some(unfit.reason().to_owned())),
                Err(error) => return (Self::unreachable(error), None),
            };
        }
        let reason = match state {
            _ if problem.is_some() => problem,
            State::Voting => None,
            State::SameServer => Some("it is the same server as another node".to_owned()),
            State::OtherCluster => Some(Standing::OtherCluster.reason().to_owned()),
            _ => Some(peer.standing.reason().to_owned()),
        };
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

impl From<Standing> for State {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Voting => Self::Voting,
            Standing::Restarted => Self::Restarted,
            Standing::Prepared => Self::Prepared,
            Standing::OtherEpoch => Self::OtherEpoch,
            Standing::Removed => Self::Removed,
            Standing::OtherCluster => Self::OtherCluster,
            Standing::NoCluster => Self::NoCluster,
        }
    }
}

impl From<Unfit> for State {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Evicting => Self::Evicting,
            Unfit::Replicated | Unfit::Clustered => Self::Replicated,
        }
    }
}

/// Counts for each node the names whose counter is below the highest of all voting nodes. `None`
/// for a node that does not answer, and if no node may vote.
async fn counters_behind(
    peers: &mut [Option<Peer>],
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
            let peer = peers[voter].as_mut().expect("a voting node has answered");
            let Some(keys) = counters.next(peer).await? else { break };
            let values = peers.iter_mut().map(|peer| read(peer.as_mut(), &keys));
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

async fn read(peer: Option<&mut Peer>, keys: &[String]) -> Result<Vec<Option<u64>>, PeerError> {
    match peer {
        Some(peer) => counters::read(peer, keys).await,
        None => Ok(vec![None; keys.len()]),
    }
}
