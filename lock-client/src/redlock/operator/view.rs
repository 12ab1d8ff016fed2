//! What the nodes of a cluster are like.

use std::{collections::HashSet, time::Duration};

use futures_util::future::{join_all, try_join_all};
use serde::Serialize;

use super::{
    Operator,
    admission::largest_cluster,
    counters::{self, Counters},
    peer::{Peer, Trouble},
};
use crate::redlock::{durability::Persistence, membership::Standing};

/// What a node is like.
#[derive(Debug, Serialize)]
pub struct View {
    /// Where it is, without a password.
    pub node: String,
    pub state: State,
    /// Why it has no vote; `None` if it has one.
    pub reason: Option<String>,
    /// The cluster's id that it keeps.
    pub cluster: Option<String>,
    /// Of how many names its counter is below the highest of all voting nodes, or missing.
    counters_behind: Option<u64>,
    /// How long it took to answer.
    lag_ms: Option<u64>,
    pub persistence: Option<Persistence>,
    /// Whether it was admitted as one that keeps its vote when it restarts.
    pub durable: Option<bool>,
    /// Whether it would be, as it is now.
    #[serde(skip)]
    pub keeps_all: bool,
}

/// How a node stands to its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Voting,
    Restarted,
    Prepared,
    OtherCluster,
    NoCluster,
    /// It is one server with another of the nodes.
    SameServer,
    Unreachable,
}

/// What a cluster is, by what its nodes tell.
#[derive(Debug, Serialize)]
pub struct Cluster {
    pub cluster: Option<String>,
    pub nodes: usize,
    pub majority: usize,
    /// How many nodes may vote.
    pub voting: usize,
    /// The longest ttl that it grants.
    pub max_ttl_ms: Option<u64>,
}

/// What was seen.
#[derive(Debug)]
pub struct Seen {
    pub nodes: Vec<View>,
    pub cluster: Cluster,
}

impl Operator {
    /// Looks at all nodes, without their counters.
    pub async fn look(&self) -> Seen {
        self.view(self.connect().await).await.0
    }

    /// Looks at all nodes and their counters.
    ///
    /// # Errors
    /// If a node goes away meanwhile.
    pub async fn look_closely(&self) -> Result<Seen, Trouble> {
        let (mut seen, mut peers) = self.view(self.connect().await).await;
        let behind = behind(&mut peers, &seen.nodes).await?;
        for (view, behind) in seen.nodes.iter_mut().zip(behind) {
            view.counters_behind = behind;
        }
        Ok(seen)
    }

    async fn view(&self, peers: Vec<Result<Peer, Trouble>>) -> (Seen, Vec<Option<Peer>>) {
        let voting = peers.iter().flatten().filter(|peer| peer.standing == Standing::Voting);
        let cluster = largest_cluster(voting).or_else(|| largest_cluster(peers.iter().flatten()));
        let mut servers = HashSet::new();
        let state = |peer: &Result<Peer, Trouble>| match peer {
            Err(_) => State::Unreachable,
            Ok(peer) if !servers.insert(peer.run_id.clone()) => State::SameServer,
            Ok(peer) if peer.record.is_some() && peer.cluster() != cluster.as_deref() => {
                State::OtherCluster
            }
            Ok(peer) => State::of(peer.standing),
        };
        let states: Vec<_> = peers.iter().map(state).collect();
        let views = peers.into_iter().zip(&self.places).zip(states);
        let views = views.map(|((peer, place), state)| async move {
            match peer {
                Ok(peer) => View::of(peer, state).await,
                Err(trouble) => (View::away(place.address(), &trouble), None),
            }
        });
        let (nodes, peers): (Vec<_>, Vec<_>) = join_all(views).await.into_iter().unzip();
        let records = peers.iter().flatten().filter(|peer| peer.cluster() == cluster.as_deref());
        let max_ttl_ms = records.filter_map(|peer| Some(peer.record.as_ref()?.max_ttl_ms)).max();
        let cluster = Cluster {
            cluster,
            nodes: nodes.len(),
            majority: self.majority(),
            voting: nodes.iter().filter(|view| view.state == State::Voting).count(),
            max_ttl_ms,
        };
        (Seen { nodes, cluster }, peers)
    }
}

impl View {
    async fn of(mut peer: Peer, state: State) -> (Self, Option<Peer>) {
        let durability = match peer.durability().await {
            Ok(durability) => durability,
            Err(trouble) => return (Self::away(&peer.address, &trouble), None),
        };
        let reason = match state {
            State::Voting => None,
            State::SameServer => Some("it is one server with another of the nodes".to_owned()),
            State::OtherCluster => Some(Standing::OtherCluster.reason().to_owned()),
            _ => Some(peer.standing.reason().to_owned()),
        };
        let view = Self {
            node: peer.address.clone(),
            state,
            reason,
            cluster: peer.cluster().map(ToOwned::to_owned),
            counters_behind: None,
            lag_ms: Some(millis(peer.lag)),
            persistence: Some(durability.persistence()),
            durable: peer.record.as_ref().map(|record| record.durable),
            keeps_all: durability.keeps_all(),
        };
        (view, Some(peer))
    }

    fn away(address: &str, trouble: &Trouble) -> Self {
        let reason = trouble.to_string();
        let reason = reason.strip_prefix(&format!("{address}: ")).unwrap_or(&reason).to_owned();
        Self {
            node: address.to_owned(),
            state: State::Unreachable,
            reason: Some(reason),
            cluster: None,
            counters_behind: None,
            lag_ms: None,
            persistence: None,
            durable: None,
            keeps_all: false,
        }
    }
}

impl State {
    fn of(standing: Standing) -> Self {
        match standing {
            Standing::Voting => Self::Voting,
            Standing::Restarted => Self::Restarted,
            Standing::Prepared => Self::Prepared,
            Standing::OtherCluster => Self::OtherCluster,
            Standing::NoCluster => Self::NoCluster,
        }
    }
}

/// Of how many names each node's counter is below the highest of all voting ones; `None` for a node
/// that is away, and if none may vote.
async fn behind(peers: &mut [Option<Peer>], views: &[View]) -> Result<Vec<Option<u64>>, Trouble> {
    let votes = |node: usize| views[node].state == State::Voting;
    let voters: Vec<_> = (0..views.len()).filter(|&node| votes(node)).collect();
    if voters.is_empty() {
        return Ok(vec![None; peers.len()]);
    }
    let mut behind: Vec<_> = peers.iter().map(|peer| peer.as_ref().map(|_| 0)).collect();
    for (nth, &voter) in voters.iter().enumerate() {
        let mut way = Counters::all();
        loop {
            let peer = peers[voter].as_mut().expect("one that votes has answered");
            let Some(keys) = way.next(peer).await? else { break };
            let values = peers.iter_mut().map(|peer| read(peer.as_mut(), &keys));
            let values = try_join_all(values).await?.into_iter().map(Vec::into_iter);
            let mut values: Vec<_> = values.collect();
            for _ in &keys {
                let counters: Vec<_> =
                    values.iter_mut().map(|of_node| of_node.next().flatten()).collect();
                // What an earlier one has was counted with it.
                if voters[..nth].iter().any(|&earlier| counters[earlier].is_some()) {
                    continue;
                }
                let highest = voters.iter().filter_map(|&voter| counters[voter]).max();
                for (behind, counter) in behind.iter_mut().zip(counters) {
                    *behind = behind.map(|behind| behind + u64::from(counter < highest));
                }
            }
        }
    }
    Ok(behind)
}

async fn read(peer: Option<&mut Peer>, keys: &[String]) -> Result<Vec<Option<u64>>, Trouble> {
    match peer {
        Some(peer) => counters::read(peer, keys).await,
        None => Ok(vec![None; keys.len()]),
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
