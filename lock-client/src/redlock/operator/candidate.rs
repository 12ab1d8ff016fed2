//! A process without a vote, and the nodes that can give it back.

use std::{collections::HashSet, time::Duration};

use fence::Holder;

use super::{
    admission::PendingAdmission,
    error::{OperatorError, how_to_start_anew},
    places::{Answer, Answers, Places},
};
use crate::{
    clock::Moment,
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::{
        epoch::Epoch,
        membership::Standing,
        peer::{Peer, PeerError},
    },
};

static MARK: Script = script!("../run_id.lua", "mark.lua");

/// A process that was seen without a vote.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Its node's address, without a password.
    pub(super) address: String,
    /// The address among the members.
    member: String,
    run_id: String,
    /// The mark of the process. While its node has it, the process has got no vote.
    pub(super) mark: String,
    /// When it was marked. Whatever its node voted for without the mark was sent before.
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
    /// Marks a member's process that has no vote. From this moment on, it is known to have none.
    /// Returns `None` if it has restarted or got a vote since its record was read.
    ///
    /// No other server must be marked: a client that names it alone takes the record for that of a
    /// node.
    pub(super) async fn mark(peer: &mut Peer, member: String) -> Result<Option<Self>, PeerError> {
        let vote = peer.record.as_ref().and_then(|record| record.vote.as_deref());
        let call = MARK.with([Keys::NODE.to_owned()]).arg(&peer.run_id);
        let call = call.arg(Holder::random().as_str()).arg(vote.unwrap_or_default());
        let mark = call.in_full().query_async::<Option<String>>(&mut peer.connection).await;
        let candidate = |mark| Self {
            address: peer.address.clone(),
            member,
            run_id: peer.run_id.clone(),
            mark,
            seen: Moment::now(),
        };
        Ok(mark.map_err(|error| peer.error(&error))?.map(candidate))
    }

    /// Returns its admission to an epoch. The wait counts from when it was marked.
    pub(super) fn admission<'a>(&self, places: &'a Places, epoch: &Epoch) -> PendingAdmission<'a> {
        let longest = Duration::from_millis(epoch.max_ttl_ms);
        PendingAdmission {
            places,
            member: self.member.clone(),
            run_id: self.run_id.clone(),
            mark: self.mark.clone(),
            epoch: epoch.clone(),
            ready_at: self.seen + longest + (longest / 100 + Duration::from_millis(2)),
        }
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
    pub(super) fn no_epoch(&self, node: &str) -> OperatorError {
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

/// Returns a node's address among the members: its own, or that of the record that it came up with.
pub(super) fn member_of(peer: &Peer, epoch: &Epoch) -> Result<String, OperatorError> {
    let addresses = [Some(peer.address.as_str()), peer.member()];
    let member = addresses.into_iter().flatten().find(|address| epoch.has_member(address));
    let stranger = || not_a_member(&peer.address, Some(epoch));
    member.map(ToOwned::to_owned).ok_or_else(stranger)
}

/// Checks that a node belongs to no other cluster.
pub(super) fn check_cluster(peer: &Peer, epoch: &Epoch) -> Result<(), OperatorError> {
    match peer.cluster() {
        Some(own) if own != epoch.cluster => Err(OperatorError::Unavailable(format!(
            "{} belongs to cluster {own}, the others to cluster {}: to move it, delete its key {} \
             first",
            peer.address,
            epoch.cluster,
            Keys::NODE
        ))),
        _ => Ok(()),
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
        None => format!("{address} is none of the nodes of --locks: name it there, too"),
    })
}

/// Why a node may not vote.
pub(super) fn why_no_vote(answer: &Answer) -> String {
    match answer {
        Ok(peer) => format!("{}: {}", peer.address, peer.standing.reason()),
        Err(error) => error.to_string(),
    }
}
