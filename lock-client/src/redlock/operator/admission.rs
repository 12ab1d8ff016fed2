//! The admission of a node that may have lost counters.
//!
//! The node has had no vote since it restarted. But what it voted for before that may still be
//! under way: a round or a reissue that it took part in goes on with the other nodes, for as long
//! as the ttl. So the counters are copied only when the longest ttl is over, counted from the
//! moment when the node was seen without a vote. An earlier copy could miss a token that is issued
//! after it, and the node would then count up to that token again.
//!
//! Another operator may admit the node during the wait. If it then loses its data, it looks as it did
//! before, but it has voted meanwhile. So an operator marks the node's record when its wait begins.
//! An admission, a change that the node accepts and a loss of data delete the mark. The node is
//! admitted only if it still has it.
//!
//! **Why M other nodes are enough.** A token was sealed by M of the N nodes. This node may be one
//! of them, so at least M - 1 others sealed it. There are N - 1 = 2 M - 2 others, so any M of them
//! share a node with any M - 1 of them. Nodes that were admitted since then have copied the token
//! themselves.

use std::time::Duration;

use super::{
    candidate::{Candidate, Voters, check_cluster, member_of, not_a_member},
    change::connect_after_changes,
    counters::{self, CopiedCounters},
    error::OperatorError,
    places::Places,
};
use crate::{
    clock::Moment,
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::{
        epoch::{Ballots, Epoch, SEPARATOR},
        membership::{Record, Standing},
        peer::Peer,
    },
};

static ADMIT: Script = script!("../run_id.lua", "admit.lua");

/// The result of a [request for admission](super::Operator::request_admission).
#[derive(Debug)]
#[must_use]
pub enum Admission<'a> {
    /// The node may vote already.
    AlreadyVoting,
    /// The node can be admitted after a wait.
    Pending(PendingAdmission<'a>),
}

/// The admission of a node that must wait.
#[derive(Debug)]
#[must_use = "the node is admitted by `finish`"]
pub struct PendingAdmission<'a> {
    pub(super) places: &'a Places,
    /// The node's address among the members.
    pub(super) member: String,
    /// The process that has no vote.
    pub(super) run_id: String,
    /// Its mark, which it loses with the next vote and with its data.
    pub(super) mark: String,
    /// The epoch to which it is admitted.
    pub(super) epoch: Epoch,
    /// When nothing is under way any more that the node voted for before it restarted.
    pub(super) ready_at: Moment,
}

impl<'a> Admission<'a> {
    pub(super) async fn request(places: &'a Places, node: &str) -> Result<Self, OperatorError> {
        let url = places.parse(node)?;
        let mut answers = connect_after_changes(places).await?;
        let Some(position) = answers.position(&url.address) else {
            return Err(not_a_member(&url.address, answers.epoch.as_ref()));
        };
        let mut peer = answers.members.remove(position)?;
        // Without an epoch, a vote may be one in a change that is not decided.
        let Some(epoch) = answers.epoch.clone() else {
            let node = peer.address.clone();
            answers.members.push(Ok(peer));
            return Err(Voters::select(answers).no_epoch(&node));
        };
        if peer.standing == Standing::Voting {
            return Ok(Self::AlreadyVoting);
        }
        check_cluster(&peer, &epoch)?;
        let member = member_of(&peer, &epoch)?;
        peer.check_fitness().await?;
        // The wait counts from here.
        let candidate = Candidate::mark(&mut peer, member).await?;
        let candidate = candidate.ok_or_else(|| {
            OperatorError::Unavailable(format!(
                "{} has just restarted, or another operator has admitted it: run `lock-client node \
                 admit` again",
                peer.address
            ))
        })?;
        Ok(Self::Pending(candidate.admission(places, &epoch)))
    }
}

impl PendingAdmission<'_> {
    /// Returns how long [`finish`](Self::finish) waits: until every lock that the node voted for
    /// before it restarted has expired.
    pub fn remaining(&self) -> Duration {
        self.ready_at.remaining()
    }

    /// Waits, copies the counters of a majority of other nodes, and admits the node.
    ///
    /// # Errors
    /// [`OperatorError::Unavailable`] if the node restarted meanwhile, if it does not
    /// answer, or if fewer than a majority of other nodes may vote. Then request the admission
    /// again.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the node is not admitted, unless admission
    /// was its last step. Some counters may have been raised, which does no harm.
    pub async fn finish(self) -> Result<CopiedCounters, OperatorError> {
        self.ready_at.passed().await;
        // Connect again: during the wait, a server may have closed an idle connection.
        let mut answers = self.places.connect_all().await;
        if answers.epoch.as_ref().is_some_and(|epoch| epoch.change != self.epoch.change) {
            return Err(OperatorError::Unavailable(format!(
                "the members have changed while {} waited: run `lock-client node admit` again",
                self.member
            )));
        }
        let position = answers.position(&self.member).ok_or_else(|| gone(&self.member))?;
        let mut peer = answers.members.remove(position)?;
        if peer.run_id != self.run_id {
            return Err(gone(&peer.address));
        }
        peer.check_fitness().await?;
        let mut voters = Voters::select(answers);
        let (mut sources, mut copied) = (0, CopiedCounters::default());
        let (mut ballots, mut previous) = (Ballots::default(), None);
        for voter in &mut voters.peers {
            match voter.give_counters(&mut peer, &mut copied, &self.epoch).await {
                Ok(()) => {
                    sources += 1;
                    let record = voter.record.take().expect("it votes in the epoch");
                    ballots = ballots.max(&record.ballots);
                    previous = previous.or(record.previous);
                }
                Err(error) => voters.reasons.push(error.to_string()),
            }
            if sources == self.epoch.majority() {
                let record = Record {
                    epoch: self.epoch,
                    address: self.member,
                    admitted: Some(self.run_id),
                    vote: None,
                    prepared: None,
                    previous,
                    ballots,
                    is_decided: true,
                };
                peer.admit(record, &self.mark).await?;
                return Ok(copied);
            }
        }
        if voters.has_majority() {
            return Err(OperatorError::Unavailable(format!(
                "{} is not admitted yet: the counters of {} other nodes must be copied to it ({})",
                peer.address,
                voters.majority,
                voters.reasons.join("; ")
            )));
        }
        Err(voters.too_few(&peer.address))
    }
}

impl Peer {
    /// Raises another node's counters to this node's.
    ///
    /// # Errors
    /// Also if this node has no vote at the end. Then it may have lost counters before
    /// they were copied.
    async fn give_counters(
        &mut self,
        to: &mut Self,
        copied: &mut CopiedCounters,
        epoch: &Epoch,
    ) -> Result<(), OperatorError> {
        counters::copy(self, to, copied).await?;
        let read = self.read_again().await;
        read.map_err(|error| self.error(&error))?;
        if !self.votes_in(epoch) {
            return Err(OperatorError::Unavailable(format!("{} has lost its vote", self.address)));
        }
        Ok(())
    }

    /// Gives the node its vote, if it is still the process that the record names, and has not voted
    /// since it got the mark.
    async fn admit(&mut self, record: Record, mark: &str) -> Result<(), OperatorError> {
        let Record { epoch, address, admitted, ballots, previous, .. } = record;
        let previous = previous.map(|last| (last.change, last.members.join(SEPARATOR)));
        let (last_change, last_members) = previous.unwrap_or_default();
        let call = ADMIT.with([Keys::NODE.to_owned()]).arg(admitted).arg(address);
        let call = call.arg(&epoch.cluster).arg(epoch.number).arg(&epoch.change);
        let call = call.arg(epoch.joined_members()).arg(epoch.max_ttl_ms);
        let call = call.arg(ballots.promised).arg(ballots.last_promised).arg(ballots.accepted);
        let call = call.arg(last_change).arg(last_members).arg(mark);
        let answer = call.in_full().query_async(&mut self.connection).await;
        match answer.map_err(|error| self.error(&error))? {
            1 => Ok(()),
            _ => Err(gone(&self.address)),
        }
    }
}

fn gone(address: &str) -> OperatorError {
    OperatorError::Unavailable(format!(
        "{address} restarted, lost its data or joined another cluster meanwhile, and has no vote: \
         run `lock-client node admit` again"
    ))
}
