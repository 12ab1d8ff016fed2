//! Rounds and reissues that take one step each.
//!
//! Models with a storage use them to have fewer states. Claims and writes still reach the storage
//! in any order, and however late.

use crate::{
    client::Phase,
    config::Config,
    id::{Holder, NodeSet, Token},
    network::has_vote,
    protocol::SealRule,
    state::State,
};

/// Acquires the lock on all of these nodes: each grants, and those with a lower grant are sealed.
pub(crate) fn acquire(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: NodeSet,
) -> Option<()> {
    let issued_before = state.history.highest_issued();
    let mut grants = Vec::new();
    for node in nodes.iter() {
        if !has_vote(config, state.node(node), state.client(holder), node) {
            return None;
        }
        grants.push(state.node_mut(node).grant(holder)?.number);
    }
    let token = highest(&grants)?;
    for (node, grant) in nodes.iter().zip(grants) {
        if grant < token {
            state.node_mut(node).seal(holder, [grant, token], token, config.protocol.seal);
        }
    }
    let client = &mut state.clients[holder.index()];
    client.phase = Phase::Round;
    client.grant = token;
    client.acquire();
    state.history.issue(token, issued_before);
    Some(())
}

/// Reissues the token on all of these nodes, above the storage's fence.
pub(crate) fn reissue(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: NodeSet,
) -> Option<()> {
    let issued_before = state.history.highest_issued();
    let client = *state.client(holder);
    let above = state.storage.highest_token().max(client.token);
    let mut raised = Vec::new();
    for node in nodes.iter() {
        if !has_vote(config, state.node(node), &client, node) {
            return None;
        }
        raised.push(state.node_mut(node).raise(holder, client.grant, above)?.number);
    }
    let token = highest(&raised)?;
    for node in nodes.iter() {
        let grants = [client.grant; 2];
        state.node_mut(node).seal(holder, grants, token, SealRule::ComparesOwnership);
    }
    let client = &mut state.clients[holder.index()];
    client.reissue.started += 1;
    client.reissue.token = token;
    client.complete_reissue(config.protocol.reissue);
    state.history.issue(token, issued_before);
    Some(())
}

fn highest(tokens: &[Token]) -> Option<Token> {
    tokens.iter().copied().max()
}
