//! The admission of a node that may have lost what it counted.
//!
//! It has had no vote since it was started. What it had voted for before may not be done yet: a
//! round, or a reissue, that it took part in goes on to ask the other nodes, for as long as the ttl.
//! So nothing is copied before the longest ttl is over, since when it was seen to have no vote: else
//! a token may yet be issued that the copy doesn't have, and nobody then keeps the node from counting
//! up to it again.
//!
//! **Why M of the others are enough.** A token was sealed by M of the N nodes, this one perhaps among
//! them: by M - 1 of the others, or more. Of those N - 1 nodes, M share one with any M - 1, as N is
//! 2 M - 1. Nodes that were admitted since then have copied in their turn.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    Operator, counters,
    peer::{Peer, Place, Trouble, distinct},
};
use crate::clock::Moment;
use crate::redis::Server;
use crate::redis::script::Script;
use crate::redis::script::script;
use crate::redlock::InvalidNodes;
use crate::redlock::membership::MEMBERSHIP_KEY;
use crate::redlock::membership::Record;
use crate::redlock::membership::Standing;

static ADMIT: Script = script!("../process.lua", "admit.lua");

/// The way out when too few nodes are left that know which tokens were issued.
pub(super) const START_ANEW: &str = "stop all clients, and wait for the longest ttl; delete the keys fenced:* on the nodes that were \
     started anew, as their counters may be old, and fenced:node on the others; then run \
     `lock-client node init`: counters that are missing start at the client's clock";

/// What became of asking for an admission.
#[derive(Debug)]
pub enum Asked<'a> {
    /// The node may vote already.
    Voting,
    /// It can be admitted, after a while.
    After(Admission<'a>),
}

/// A node that can be admitted.
#[derive(Debug)]
pub struct Admission<'a> {
    operator: &'a Operator,
    /// Which of the nodes it is.
    node: usize,
    /// The process that has no vote.
    run_id: String,
    /// What the others are members of.
    record: Record,
    /// From when on nothing is under way that it had voted for.
    settled: Moment,
}

impl Operator {
    /// Asks for the admission of one of the nodes. Nothing is changed on one that has no vote.
    pub async fn ask_to_admit(&self, node: &str) -> Result<Asked<'_>, Trouble> {
        let node = self.named(node)?;
        let mut peers = self.connect().await;
        distinct(peers.iter().flatten())?;
        let mut peer = peers.remove(node)?;
        // From here on it is known to have no vote.
        let seen = Moment::now();
        let (voters, away) = voters(peers);
        let record = voters.first().and_then(|voter| voter.record.clone());
        if let (Some(own), Some(others)) = (peer.cluster(), &record)
            && own != others.cluster
        {
            return Err(Trouble::Unavailable(format!(
                "{} belongs to cluster {own}, the others to cluster {}: if it is to change, delete its \
                 fenced:node first",
                peer.address, others.cluster
            )));
        }
        if let (Standing::Voting, Some(own)) = (peer.standing, peer.record.clone()) {
            // Its settings may be others than when it was admitted.
            peer.admit(&own).await?;
            return Ok(Asked::Voting);
        }
        let Some(record) = record.filter(|_| voters.len() >= self.majority()) else {
            return Err(self.too_few(&peer.address, &away));
        };
        let max_ttl_ms = voters.iter().filter_map(|voter| Some(voter.record.as_ref()?.max_ttl_ms));
        let max_ttl = Duration::from_millis(max_ttl_ms.max().unwrap_or(record.max_ttl_ms));
        let settled = seen + max_ttl + (max_ttl / 100 + Duration::from_millis(2));
        Ok(Asked::After(Admission { operator: self, node, run_id: peer.run_id, record, settled }))
    }

    /// Which of the nodes a URL means.
    fn named(&self, node: &str) -> Result<usize, Trouble> {
        let place = Server::open(node).map_err(InvalidNodes::from);
        let place = place.and_then(|server| Place::of(&server));
        let place = place.map_err(|error| Trouble::Wrong(error.to_string()))?;
        let at = self.places.iter().position(|known| known.address() == place.address());
        at.ok_or_else(|| {
            Trouble::Wrong(format!(
                "{} is none of the nodes of --redis: name it there, too",
                place.address()
            ))
        })
    }

    fn too_few(&self, node: &str, away: &[String]) -> Trouble {
        Trouble::Unavailable(format!(
            "{node} can't be admitted: which tokens were issued can only be told by {} of the other \
             nodes ({}). If they don't come back as they were: {START_ANEW}",
            self.majority(),
            away.join("; ")
        ))
    }
}

impl Admission<'_> {
    /// How long it is until nothing is under way any more that the node had voted for.
    pub fn remaining(&self) -> Duration {
        self.settled.remaining()
    }

    /// Waits for so long, copies the counters of a majority, and admits the node. Answers how many
    /// counters were raised.
    ///
    /// # Cancellation safety
    /// If this is dropped, the node isn't admitted, unless it is at its end. That counters were raised is
    /// no harm.
    pub async fn finish(self) -> Result<u64, Trouble> {
        while !self.settled.has_passed() {
            sleep(self.settled.remaining()).await;
        }
        // A connection may have been closed for having been silent for so long.
        let mut peers = self.operator.connect().await;
        let mut peer = peers.remove(self.node)?;
        if peer.run_id != self.run_id {
            return Err(peer.started_anew());
        }
        let (voters, mut away) = voters(peers);
        let (mut copied, mut raised) = (0, 0);
        for mut voter in voters {
            match voter.give_counters(&mut peer, &self.record.cluster).await {
                Ok(counters) => {
                    copied += 1;
                    raised += counters;
                }
                Err(trouble) => away.push(trouble.to_string()),
            }
            if copied == self.operator.majority() {
                peer.admit(&self.record).await?;
                return Ok(raised);
            }
        }
        Err(self.operator.too_few(&peer.address, &away))
    }
}

impl Peer {
    /// Copies all counters to another node that are higher here.
    ///
    /// # Errors
    /// Also if it had no vote any more at the end: then it may have lost some before they were copied.
    async fn give_counters(&mut self, to: &mut Self, cluster: &str) -> Result<u64, Trouble> {
        let raised = counters::copy(self, to).await?;
        let record = Record::read(&mut self.connection).await;
        let record = record.map_err(|error| self.trouble(error))?;
        let votes = record.is_some_and(|record| {
            record.cluster == cluster && record.admitted.as_ref() == Some(&self.run_id)
        });
        match votes {
            true => Ok(raised),
            false => Err(Trouble::Unavailable(format!("{}: it has lost its vote", self.address))),
        }
    }

    /// Gives it a vote in a cluster.
    async fn admit(&mut self, cluster: &Record) -> Result<(), Trouble> {
        let durable = self.durability().await?.keeps_all();
        let call = ADMIT.with([MEMBERSHIP_KEY.to_owned()]).arg(&self.run_id).arg(&cluster.cluster);
        let call = call.arg(cluster.nodes).arg(cluster.max_ttl_ms).arg(u8::from(durable));
        let answer = call.in_full().query_async(&mut self.connection).await;
        match answer.map_err(|error| self.trouble(error))? {
            1 => Ok(()),
            _ => Err(self.started_anew()),
        }
    }

    fn started_anew(&self) -> Trouble {
        Trouble::Unavailable(format!(
            "{} was started anew, or taken into another cluster, and has no vote: run this again",
            self.address
        ))
    }
}

/// Those that may vote in the cluster in which most may; and why the others may not.
fn voters(peers: Vec<Result<Peer, Trouble>>) -> (Vec<Peer>, Vec<String>) {
    let mut away = Vec::new();
    let mut voting = Vec::new();
    for peer in peers {
        match peer {
            Ok(peer) if peer.standing == Standing::Voting => voting.push(peer),
            Ok(peer) => away.push(format!("{}: {}", peer.address, peer.standing.reason())),
            Err(trouble) => away.push(trouble.to_string()),
        }
    }
    let cluster = largest_cluster(&voting);
    let (voters, others): (Vec<_>, Vec<_>) =
        voting.into_iter().partition(|peer| peer.cluster() == cluster.as_deref());
    away.extend(
        others.iter().map(|peer| format!("{}: it belongs to another cluster", peer.address)),
    );
    (voters, away)
}

/// The cluster that most nodes belong to.
pub(super) fn largest_cluster<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> Option<String> {
    let mut clusters: Vec<_> = peers.into_iter().filter_map(Peer::cluster).collect();
    clusters.sort_unstable();
    let largest = clusters.chunk_by(|a, b| a == b).max_by_key(|same| same.len())?;
    largest.first().map(|&cluster| cluster.to_owned())
}
