//! Rounds and reissues that take one step each, for models that are about the storage.
//!
//! What clients do at the storage may still happen in any order, and as late as it likes.

use crate::{
    client::Phase,
    config::Config,
    id::{Holder, Nodes, Token},
    network::has_vote,
    state::State,
};

/// Acquires on some nodes: all are granted, and those that granted less are sealed.
pub(crate) fn acquire(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: Nodes,
) -> Option<()> {
    let told = state.history.highest_told();
    let mut grants = Vec::new();
    for node in nodes.iter() {
        if !has_vote(config, state.node(node), state.client(holder), node) {
            return None;
        }
        grants.push(state.node_mut(node).grant(holder)?);
    }
    let token = highest(&grants)?;
    for (node, grant) in nodes.iter().zip(grants) {
        if grant < token {
            state.node_mut(node).seal(holder, grant, token, config.variant.seal);
        }
    }
    let client = &mut state.clients[holder.index()];
    client.phase = Phase::Round;
    client.grant = token;
    client.acquire();
    state.history.tell(token, told);
    Some(())
}

/// Reissues on some nodes, above what the storage has seen.
pub(crate) fn reissue(
    config: &Config,
    state: &mut State,
    holder: Holder,
    nodes: Nodes,
) -> Option<()> {
    let told = state.history.highest_told();
    let client = *state.client(holder);
    let above = state.storage.highest_token().max(client.token);
    let mut raised = Vec::new();
    for node in nodes.iter() {
        if !has_vote(config, state.node(node), &client, node) {
            return None;
        }
        raised.push(state.node_mut(node).raise(holder, client.grant, above)?);
    }
    let token = highest(&raised)?;
    for node in nodes.iter() {
        state.node_mut(node).reissue(holder, client.grant, token);
    }
    let client = &mut state.clients[holder.index()];
    client.reissue.begun += 1;
    client.reissue.token = token;
    client.reissued(&config.variant);
    state.history.tell(token, told);
    Some(())
}

fn highest(tokens: &[Token]) -> Option<Token> {
    tokens.iter().copied().max()
}
