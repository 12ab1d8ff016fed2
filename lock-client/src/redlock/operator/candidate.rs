//! A process without a vote, and the nodes that can give it back.

use std::{collections::HashSet, time::Duration};

use super::{
    admission::PendingAdmission,
    error::{OperatorError, how_to_start_anew},
    places::{Answer, Answers, Places},
};
use crate::{
    clock::Moment,
    redis::keys::Keys,
    redlock::{epoch::Epoch, membership::Standing, peer::Peer},
};

/// A process that was seen without a vote.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Its node's address, without a password.
    pub(super) address: String,
    /// The member's address in the record that the process started with.
    member: Option<String>,
    pub(super) run_id: String,
    /// The cluster in that record.
    cluster: Option<String>,
    /// When it was first seen. All votes of the earlier process were sent before this moment.
    seen: Moment,
}

/// The nodes that may vote in the current epoch.
pub(super) struct Voters {
    pub(super) peers: Vec<Peer>,
    /// Why each of the other nodes may not vote.
    pub(super) reasons: Vec<String>,
    /// How many of them are a majority.
    pub(super) majority: usize,
    /// Why a change of the members that is half done could not be finished.
    unfinished: Option<OperatorError>,
}

impl Candidate {
    pub(super) fn new(peer: &Peer, seen: Moment) -> Self {
        Self {
            address: peer.address.clone(),
            member: peer.member().map(ToOwned::to_owned),
            run_id: peer.run_id.clone(),
            cluster: peer.cluster().map(ToOwned::to_owned),
            seen,
        }
    }

    /// Returns its admission to the current epoch. The wait counts from when it was first seen.
    pub(super) fn admission<'a>(
        &self,
        places: &'a Places,
        epoch: Option<&Epoch>,
        voters: &Voters,
    ) -> Result<PendingAdmission<'a>, OperatorError> {
        let Some(epoch) = epoch else { return Err(voters.no_epoch(&self.address)) };
        if let Some(own) = &self.cluster
            && *own != epoch.cluster
        {
            return Err(OperatorError::Unavailable(format!(
                "{} belongs to cluster {own}, the others to cluster {}: to move it, delete its key \
                 {} first",
                self.address,
                epoch.cluster,
                Keys::NODE
            )));
        }
        let member = [Some(&self.address), self.member.as_ref()];
        let Some(member) = member.into_iter().flatten().find(|member| epoch.has_member(member))
        else {
            return Err(not_a_member(&self.address, Some(epoch)));
        };
        let longest = Duration::from_millis(epoch.max_ttl_ms);
        let ready_at = self.seen + longest + (longest / 100 + Duration::from_millis(2));
        Ok(PendingAdmission {
            places,
            member: member.clone(),
            run_id: self.run_id.clone(),
            epoch: epoch.clone(),
            ready_at,
        })
    }
}

impl Voters {
    /// Selects the nodes that may vote in the current epoch.
    pub(super) fn select(answers: Answers) -> Self {
        let majority = answers.majority();
        let unfinished = answers.unfinished;
        let mut reasons = Vec::new();
        let mut peers: Vec<Peer> = Vec::new();
        // A process has one vote, however it was reached.
        let mut processes = HashSet::new();
        for answer in answers.members {
            match answer {
                Ok(peer)
                    if peer.standing == Standing::Voting
                        && processes.insert(peer.run_id.clone()) =>
                {
                    peers.push(peer);
                }
                answer => reasons.push(why_no_vote(&answer)),
            }
        }
        Self { peers, reasons, majority, unfinished }
    }

    /// Whether they are a majority of the members. Fewer may lack an issued token.
    pub(super) fn has_majority(&self) -> bool {
        self.peers.len() >= self.majority
    }

    /// The error that they are too few to admit a node.
    pub(super) fn too_few(&self, node: &str) -> OperatorError {
        OperatorError::Unavailable(format!(
            "{node} can't be admitted: to know all issued tokens, {} of the other nodes must be \
             able to vote ({}). If they don't come back with their vote, a person must decide: {}",
            self.majority,
            self.reasons.join("; "),
            how_to_start_anew()
        ))
    }

    /// The error that there is no epoch to which a node could be admitted.
    fn no_epoch(&self, node: &str) -> OperatorError {
        if !self.has_majority() {
            return self.too_few(node);
        }
        self.unfinished.clone().unwrap_or_else(|| {
            OperatorError::Unavailable(format!(
                "{node} can't be admitted: no majority of the members votes in one epoch of one \
                 cluster. Name all members, also those that were added: `lock-client node status` \
                 shows which of them don't vote"
            ))
        })
    }
}

/// The error that a server can't be admitted, because it is no member.
pub(super) fn not_a_member(address: &str, epoch: Option<&Epoch>) -> OperatorError {
    OperatorError::Invalid(match epoch {
        Some(epoch) => format!(
            "{address} is no member of the cluster, whose members are {}: to add it or to put it in \
             place of another, run `lock-client node change`",
            epoch.members.join(", ")
        ),
        None => format!("{address} is none of the nodes of --redis: name it there, too"),
    })
}

/// Why a node may not vote.
pub(super) fn why_no_vote(answer: &Answer) -> String {
    match answer {
        Ok(peer) => format!("{}: {}", peer.address, peer.standing.reason()),
        Err(error) => error.to_string(),
    }
}
