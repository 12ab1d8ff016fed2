//! The votes of all nodes on whether the lock still belongs to an ownership.

use std::sync::Arc;

use super::{
    membership::Membership,
    node_error::NodeError,
    nodes::{Answers, Nodes},
    request::Request,
};
use crate::{backend::BackendError, redis::script::Call};

/// The votes of the nodes on one ownership. A node answers 0 if the lock there does not belong to
/// it, and another number if it does.
pub(super) struct Votes {
    /// The numbers of the nodes where the lock belongs to the ownership.
    pub(super) ours: Vec<i64>,
    /// How many nodes said that it does not.
    pub(super) not_ours: usize,
    /// The nodes that did not vote.
    pub(super) errors: Vec<(usize, NodeError)>,
}

impl Votes {
    /// Counts answers until the remaining nodes can't change the result.
    pub(super) async fn collect(nodes: &Nodes, mut answers: Answers<i64>) -> Self {
        let mut votes = Self { ours: Vec::new(), not_ours: 0, errors: Vec::new() };
        while !votes.has_majority(nodes) && !votes.is_lost(nodes) {
            match answers.recv().await {
                Some((_, Ok(0))) => votes.not_ours += 1,
                Some((_, Ok(number))) => votes.ours.push(number),
                Some((node, Err(error))) => votes.errors.push((node, error)),
                None => break,
            }
        }
        votes
    }

    /// Whether the lock belongs to the ownership on a majority.
    pub(super) fn has_majority(&self, nodes: &Nodes) -> bool {
        self.ours.len() >= nodes.majority()
    }

    /// Whether so many nodes voted against the ownership that the others are no majority.
    pub(super) fn is_lost(&self, nodes: &Nodes) -> bool {
        self.not_ours > nodes.len() - nodes.majority()
    }
}

/// Asks all nodes for their votes. Returns the numbers of a majority, or `None` if the lock does
/// not belong to the ownership on any majority.
pub(super) async fn ask_majority(
    nodes: &Arc<Nodes>,
    call: impl Fn(&Membership) -> Call + Send + Sync + 'static,
) -> Result<Option<Vec<i64>>, BackendError> {
    let votes = Votes::collect(nodes, nodes.ask_all(Request::Vote, call)).await;
    if votes.has_majority(nodes) {
        Ok(Some(votes.ours))
    } else if votes.is_lost(nodes) {
        Ok(None)
    } else {
        Err(nodes.no_majority(&votes.errors))
    }
}
