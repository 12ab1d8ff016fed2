//! The votes of all nodes on whether the lock still belongs to a lease.
//!
//! A node counts for a lease only if its *floor*, its counter before this ownership took it, is
//! below the token that the lease had when the step began. On a node with a higher floor, another
//! client may have had a higher token in the meantime.

use std::sync::Arc;

use fence::Token;

use super::{
    lease::Lease,
    membership::Membership,
    node_error::NodeError,
    nodes::{Answers, Nodes},
    reply::{Owned, OwnerReply},
    request::Request,
};
use crate::{
    backend::{BackendError, Ownership},
    redis::script::Call,
};

/// Which nodes count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counting {
    /// Those with a floor below this token.
    FloorBelow(Token),
    /// All on which the lock belongs to the lease. A raise always counts towards the height.
    All,
}

impl Counting {
    pub(super) fn counts(self, floor: u64) -> bool {
        match self {
            Self::FloorBelow(token) => floor < token.as_u64(),
            Self::All => true,
        }
    }
}

/// The votes of the nodes on one ownership.
#[derive(Default)]
pub(super) struct Votes {
    /// The numbers of the nodes that count.
    pub(super) numbers: Vec<Token>,
    /// The highest floor of the nodes that belong to the lease and do not count.
    pub(super) uncounted: Option<u64>,
    /// The nodes where the lock does not belong to the lease.
    pub(super) free: Vec<usize>,
    /// How many nodes do not count, or do not belong to the lease.
    against: usize,
    /// How many nodes had the lock under another grant than this client knew. It knows now.
    learned: usize,
    /// The nodes that did not vote.
    errors: Vec<(usize, NodeError)>,
}

impl Votes {
    /// Counts answers until the remaining nodes can't change the result.
    async fn collect(
        nodes: &Nodes,
        lease: &Lease,
        counting: Counting,
        answers: &mut Answers<OwnerReply>,
    ) -> Self {
        let mut votes = Self::default();
        while !votes.has_majority(nodes) && !votes.is_lost(nodes) {
            let Some((node, answer)) = answers.recv().await else { break };
            match answer {
                Ok(OwnerReply::Owned(Owned { number, floor })) if counting.counts(floor) => {
                    votes.numbers.push(number);
                }
                Ok(OwnerReply::Owned(Owned { floor, .. })) => {
                    votes.against += 1;
                    votes.uncounted = votes.uncounted.max(Some(floor));
                }
                Ok(OwnerReply::Other { grant }) => {
                    lease.set_grant(nodes.address(node), grant);
                    votes.learned += 1;
                }
                Ok(OwnerReply::NotOurs) => {
                    votes.against += 1;
                    votes.free.push(node);
                }
                Err(error) => votes.errors.push((node, error)),
            }
        }
        votes
    }

    /// Whether a majority counts for the lease.
    fn has_majority(&self, nodes: &Nodes) -> bool {
        self.numbers.len() >= nodes.majority()
    }

    /// Whether so many nodes are against the lease that the others are no majority.
    fn is_lost(&self, nodes: &Nodes) -> bool {
        self.against > nodes.len() - nodes.majority()
    }
}

/// Asks all nodes for their votes, each under the lease's grant there. Returns the votes if a
/// majority counts, and the answers that are still outstanding. Returns `None` if the lock does not
/// belong to the lease on any majority.
pub(super) async fn ask_majority(
    nodes: &Arc<Nodes>,
    lease: &Arc<Lease>,
    counting: Counting,
    call: impl Fn(&Ownership, &Membership) -> Call + Clone + Send + Sync + 'static,
) -> Result<Option<(Votes, Answers<OwnerReply>)>, BackendError> {
    let mut is_first = true;
    loop {
        let (call, asked, places) = (call.clone(), lease.clone(), nodes.clone());
        let call =
            move |node: usize, member: &_| call(&asked.ownership_on(places.address(node)), member);
        let mut answers = nodes.ask_all(Request::Vote, call);
        let votes = Votes::collect(nodes, lease, counting, &mut answers).await;
        if votes.has_majority(nodes) {
            return Ok(Some((votes, answers)));
        }
        // A client that has adopted the lease learns the grants from the first answers.
        if votes.learned > 0 && is_first {
            is_first = false;
            continue;
        }
        if votes.is_lost(nodes) || votes.against + votes.learned > nodes.len() - nodes.majority() {
            return Ok(None);
        }
        return Err(nodes.no_majority(&votes.errors));
    }
}
