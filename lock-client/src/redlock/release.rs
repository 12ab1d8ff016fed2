//! The release of a lock on all nodes.

use std::sync::Arc;

use fence::{Holder, Token};
use tokio::time::timeout;

use super::{nodes::Nodes, patience::Request, script};
use crate::{backend::BackendError, clock::Moment, redis::keys::Keys};

/// Releases a lock, and raises the counters to a token. Once it returns, a majority of the nodes
/// does not have the lock for this holder. Only nodes with a vote count, because another may have lost the
/// lock. Returns whether a majority may have had it: a node that does not answer may.
pub(super) async fn release(
    nodes: Arc<Nodes>,
    keys: &Keys,
    holder: &Holder,
    token: Option<Token>,
) -> Result<bool, BackendError> {
    let (keys, holder) = (keys.clone(), holder.clone());
    let release = move |_, vote: &_| script::release(&keys, vote, &holder, token);
    let mut answers = nodes.ask_all::<bool>(Request::Release, release);
    let (mut released, mut not_ours, mut errors) = (0, 0, Vec::new());
    let majority = nodes.majority();
    let is_lost = |not_ours| not_ours > nodes.len() - majority;
    let mut decided = None;
    while released < majority && !is_lost(not_ours) {
        let answer = if released + not_ours < majority {
            answers.recv().await
        } else {
            // The other answers only complete what is returned.
            let until = decided.get_or_insert_with(|| Moment::now() + nodes.timeout(Request::Vote));
            timeout(until.remaining(), answers.recv()).await.ok().flatten()
        };
        match answer {
            Some((_, Ok(true))) => released += 1,
            Some((_, Ok(false))) => not_ours += 1,
            Some((node, Err(error))) => errors.push((node, error)),
            None => break,
        }
    }
    if released + not_ours < majority {
        return Err(nodes.no_majority(&errors));
    }
    Ok(!is_lost(not_ours))
}
