//! The admission of a node that may have lost counters.
//!
//! The node has had no vote since it restarted. But what it voted for before that may still be
//! under way: a round or a reissue that it took part in goes on with the other nodes, for as long
//! as the ttl. So the counters are copied only when the longest ttl is over, counted from the
//! moment when the node was seen without a vote. An earlier copy could miss a token that is issued
//! after it, and the node would then count up to that token again.
//!
//! **Why M other nodes are enough.** A token was sealed by M of the N nodes. This node may be one
//! of them, so at least M - 1 others sealed it. There are N - 1 = 2 M - 2 others, so any M of them
//! share a node with any M - 1 of them. Nodes that were admitted since then have copied the token
//! themselves.

use std::time::Duration;

use super::{
    candidate::{Candidate, Voters},
    counters,
    error::OperatorError,
    peer::{Peer, check_distinct},
    places::Places,
};
use crate::{
    clock::Moment,
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::membership::{Record, Standing, read_run_id},
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
    /// The number of the node.
    pub(super) node: usize,
    /// The process that has no vote.
    pub(super) run_id: String,
    /// The membership of the other nodes.
    pub(super) record: Record,
    /// When nothing is under way any more that the node voted for before it restarted.
    pub(super) ready_at: Moment,
}

impl<'a> Admission<'a> {
    pub(super) async fn request(places: &'a Places, node: &str) -> Result<Self, OperatorError> {
        let node = places.position(node)?;
        let mut peers = places.connect_all().await;
        check_distinct(peers.iter().flatten())?;
        let peer = peers.remove(node)?;
        if peer.standing == Standing::Voting {
            return Ok(Self::AlreadyVoting);
        }
        // From this moment on, the process is known to have no vote. The wait counts from here.
        let candidate = Candidate::new(node, &peer, Moment::now());
        Ok(Self::Pending(candidate.admission(places, &Voters::select(peers))?))
    }
}

impl PendingAdmission<'_> {
    /// Returns how long [`finish`](Self::finish) waits: until every lock that the node voted for
    /// before it restarted has expired.
    pub fn remaining(&self) -> Duration {
        self.ready_at.remaining()
    }

    /// Waits, copies the counters of a majority of other nodes, and admits the node. Returns how
    /// many counters were raised.
    ///
    /// # Errors
    /// [`OperatorError::Unavailable`] if the node restarted meanwhile, if it does not
    /// answer, or if fewer than a majority of other nodes may vote. Then request the admission
    /// again.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the node is not admitted, unless admission
    /// was its last step. Some counters may have been raised, which does no harm.
    pub async fn finish(self) -> Result<u64, OperatorError> {
        self.ready_at.passed().await;
        // Connect again: during the wait, a server may have closed an idle connection.
        let mut peers = self.places.connect_all().await;
        let mut peer = peers.remove(self.node)?;
        if peer.run_id != self.run_id {
            return Err(peer.restarted());
        }
        let mut voters = Voters::select(peers);
        let (mut copied, mut raised) = (0, 0);
        for voter in &mut voters.peers {
            match voter.give_counters(&mut peer, &self.record.cluster).await {
                Ok(counters) => {
                    copied += 1;
                    raised += counters;
                }
                Err(error) => voters.others.push(error.to_string()),
            }
            if copied == self.places.majority() {
                peer.admit(&self.record).await?;
                return Ok(raised);
            }
        }
        Err(voters.too_few(self.places, &peer.address))
    }
}

impl Peer {
    /// Raises another node's counters to this node's.
    ///
    /// # Errors
    /// Also if this node has no vote at the end. Then it may have lost counters before
    /// they were copied.
    async fn give_counters(&mut self, to: &mut Self, cluster: &str) -> Result<u64, OperatorError> {
        let raised = counters::copy(self, to).await?;
        let run_id = read_run_id(&mut self.connection).await;
        let run_id = run_id.map_err(|error| self.error(&error))?;
        let record = Record::read(&mut self.connection).await;
        let record = record.map_err(|error| self.error(&error))?;
        let may_vote = run_id == self.run_id
            && record.is_some_and(|record| {
                record.cluster == cluster && record.admitted.as_ref() == Some(&self.run_id)
            });
        if !may_vote {
            return Err(OperatorError::Unavailable(format!("{} has lost its vote", self.address)));
        }
        Ok(raised)
    }

    /// Gives the node its vote in a cluster.
    async fn admit(&mut self, cluster: &Record) -> Result<(), OperatorError> {
        let call = ADMIT.with([Keys::NODE.to_owned()]).arg(&self.run_id).arg(&cluster.cluster);
        let call = call.arg(cluster.nodes).arg(cluster.max_ttl_ms);
        let answer = call.in_full().query_async(&mut self.connection).await;
        match answer.map_err(|error| self.error(&error))? {
            1 => Ok(()),
            _ => Err(self.restarted()),
        }
    }

    fn restarted(&self) -> OperatorError {
        OperatorError::Unavailable(format!(
            "{} restarted or joined another cluster meanwhile, and has no vote: run \
             `lock-client node admit` again",
            self.address
        ))
    }
}
