//! A process without a vote, and the nodes that can give it back.

use std::time::Duration;

use super::{
    admission::PendingAdmission,
    error::{OperatorError, how_to_start_anew},
    peer::{Peer, PeerError, largest_cluster},
    places::Places,
};
use crate::{clock::Moment, redis::keys::Keys, redlock::membership::Standing};

/// A process that was seen without a vote.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The number of its node.
    pub(super) node: usize,
    /// Its node's address, without a password.
    pub(super) address: String,
    pub(super) run_id: String,
    /// The cluster in the record that it came up with.
    cluster: Option<String>,
    /// When it was first seen. Whatever its node voted for as another process was sent before.
    seen: Moment,
}

/// The nodes that may vote in the largest cluster.
pub(super) struct Voters {
    pub(super) peers: Vec<Peer>,
    /// Why each of the others may not vote.
    pub(super) others: Vec<String>,
}

impl Candidate {
    pub(super) fn new(node: usize, peer: &Peer, seen: Moment) -> Self {
        Self {
            node,
            address: peer.address.clone(),
            run_id: peer.run_id.clone(),
            cluster: peer.cluster().map(ToOwned::to_owned),
            seen,
        }
    }

    /// Returns its admission to the voters' cluster. The wait counts from when it was first seen.
    pub(super) fn admission<'a>(
        &self,
        places: &'a Places,
        voters: &Voters,
    ) -> Result<PendingAdmission<'a>, OperatorError> {
        let record = voters.peers.first().and_then(|voter| voter.record.clone());
        if let (Some(own), Some(record)) = (&self.cluster, &record)
            && *own != record.cluster
        {
            return Err(OperatorError::Unavailable(format!(
                "{} belongs to cluster {own}, the others to cluster {}: to move it, delete its key \
                 {} first",
                self.address,
                record.cluster,
                Keys::NODE
            )));
        }
        let Some(record) = record.filter(|_| voters.has_majority(places)) else {
            return Err(voters.too_few(places, &self.address));
        };
        let longest = voters.peers.iter().filter_map(|voter| voter.record.as_ref());
        let longest = longest.map(|record| record.max_ttl_ms).max().unwrap_or(record.max_ttl_ms);
        let longest = Duration::from_millis(longest);
        let ready_at = self.seen + longest + (longest / 100 + Duration::from_millis(2));
        let (node, run_id) = (self.node, self.run_id.clone());
        Ok(PendingAdmission { places, node, run_id, record, ready_at })
    }
}

impl Voters {
    /// Selects the nodes that may vote in the largest cluster.
    pub(super) fn select(peers: Vec<Result<Peer, PeerError>>) -> Self {
        let mut others = Vec::new();
        let mut voting = Vec::new();
        for peer in peers {
            match peer {
                Ok(peer) if peer.standing == Standing::Voting => voting.push(peer),
                Ok(peer) => others.push(format!("{}: {}", peer.address, peer.standing.reason())),
                Err(error) => others.push(error.to_string()),
            }
        }
        let cluster = largest_cluster(&voting);
        let (peers, strangers): (Vec<_>, Vec<_>) =
            voting.into_iter().partition(|peer| peer.cluster() == cluster.as_deref());
        let stranger = |peer: &Peer| format!("{}: it belongs to another cluster", peer.address);
        others.extend(strangers.iter().map(stranger));
        Self { peers, others }
    }

    /// Whether they are a majority of all nodes. Fewer may lack an issued token.
    pub(super) fn has_majority(&self, places: &Places) -> bool {
        self.peers.len() >= places.majority()
    }

    /// The error that they are too few to admit a node.
    pub(super) fn too_few(&self, places: &Places, node: &str) -> OperatorError {
        OperatorError::Unavailable(format!(
            "{node} can't be admitted: to know all issued tokens, {} of the other nodes must be \
             able to vote ({}). If they don't come back with their vote, a person must decide: {}",
            places.majority(),
            self.others.join("; "),
            how_to_start_anew()
        ))
    }
}
