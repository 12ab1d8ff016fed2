//! The release of a lock on all nodes.

use std::sync::Arc;

use fence::{Holder, Token};

use super::{nodes::Nodes, request::Request, script};
use crate::{backend::BackendError, redis::keys::Keys};

/// Releases a lock, and raises the counters to a token. Returns whether the lock was the holder's on
/// a majority of the nodes, and they have freed it.
pub(super) async fn release(
    nodes: Arc<Nodes>,
    keys: &Keys,
    holder: &Holder,
    token: Option<Token>,
) -> Result<bool, BackendError> {
    let (keys, holder) = (keys.clone(), holder.clone());
    let release = move |_, _: &_| script::release(&keys, &holder, token);
    let mut answers = nodes.ask_all::<bool>(Request::Release, release);
    let (mut released, mut not_ours, mut errors) = (0, 0, Vec::new());
    let majority = nodes.majority();
    // The lock may have been ours on nodes that do not answer.
    let is_lost = |not_ours| not_ours > nodes.len() - majority;
    while released < majority && !is_lost(not_ours) {
        match answers.recv().await {
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
