//! The network, in which messages are late, lost and duplicated.
//!
//! A request stays in it for ever: from the moment when it was sent it may be delivered at any time,
//! any number of times, or never, also when its client is long gone. So the network needs no state of
//! its own: what is in it follows from what the clients have sent.
//!
//! Answers may be lost or late as well. That of a grant, and that of a raise, are kept until the client
//! hears of them, in a step of its own. Those of seals and renewals count at once, which comes to the
//! same: all that a client does with them is to conclude, at any later moment, or never.

use crate::{
    client::{Client, Phase},
    config::{Config, Grants},
    id::{Holder, NodeId},
    node::Node,
    state::State,
    variant,
};

/// A request to a node, or a node's answer to it, that is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Asks for the lock.
    Grant,
    /// The same, whose answer is lost: another answer is on its way, and that will be heard of.
    GrantUnheard,
    /// A node's grant.
    Granted,
    /// Seals a node with the round's token.
    Seal,
    /// Frees the lock.
    Release,
    /// Asks for the token that is in the lock.
    Renew,
    /// Raises a counter above a token: the first half of a reissue.
    Raise,
    /// The same, whose answer is lost.
    RaiseUnheard,
    /// A node's raised counter.
    Raised,
    /// Seals a node with a reissued token.
    Reissue,
}

impl Message {
    const ALL: [Self; 10] = [
        Self::Grant,
        Self::GrantUnheard,
        Self::Granted,
        Self::Seal,
        Self::Release,
        Self::Renew,
        Self::Raise,
        Self::RaiseUnheard,
        Self::Raised,
        Self::Reissue,
    ];
}

/// The messages of a client that may be in the network. Some of them would change nothing.
pub(crate) fn messages(
    config: &Config,
    state: &State,
    holder: Holder,
    node: NodeId,
) -> impl Iterator<Item = Message> {
    let client = *state.client(holder);
    let heard = client.counted.contains(node);
    let answer = client.grants[node.index()];
    let in_time = matches!(client.phase, Phase::Round | Phase::Lease);
    let had_lease = matches!(client.phase, Phase::Lease | Phase::Released);
    let ended = matches!(client.phase, Phase::Released | Phase::GaveUp);
    let grant_sent = match config.grants {
        Grants::Anytime => true,
        Grants::Once => !ended && !client.asked.contains(node),
    };
    let to_heard_of = config.variant.release == variant::Release::ToHeardOf;
    let reissue = client.reissue;
    let raised = reissue.raised[node.index()];
    let raise_sent = had_lease && reissue.begun > 0;
    Message::ALL.into_iter().filter(move |message| match message {
        Message::Grant => grant_sent,
        Message::GrantUnheard => grant_sent && in_time && !heard && answer != 0,
        Message::Granted => in_time && !heard && answer != 0,
        Message::Seal => config.variant.seal != variant::Seal::None && client.seals(node),
        Message::Release => ended && (heard || !to_heard_of),
        // No other token than the one that was told is in a lock before.
        Message::Renew => {
            config.renewals
                && client.phase == Phase::Lease
                && reissue.begun > 0
                && !reissue.under_way
        }
        Message::Raise => raise_sent,
        Message::RaiseUnheard => {
            raise_sent && reissue.under_way && !reissue.counted.contains(node) && raised != 0
        }
        Message::Raised => reissue.under_way && !reissue.counted.contains(node) && raised != 0,
        Message::Reissue => {
            had_lease && reissue.token != 0 && config.variant.reissue != variant::Reissue::Unsealed
        }
    })
}

/// Delivers a message.
pub(crate) fn deliver(
    config: &Config,
    state: &mut State,
    holder: Holder,
    id: NodeId,
    message: Message,
) {
    let at = id.index();
    let client = &mut state.clients[holder.index()];
    let node = &mut state.nodes[at];
    let needs_vote = !matches!(message, Message::Granted | Message::Raised | Message::Release);
    if needs_vote && !has_vote(config, node, client, id) {
        return;
    }
    match message {
        Message::Grant | Message::GrantUnheard => {
            client.begin(state.history.highest_told());
            let in_time = matches!(client.phase, Phase::Round | Phase::Lease);
            if config.grants == Grants::Once {
                client.asked.insert(id);
            }
            if let Some(grant) = node.grant(holder)
                && message == Message::Grant
                && in_time
                && !client.counted.contains(id)
            {
                client.grants[at] = grant;
            }
        }
        Message::Granted => client.count(id),
        Message::Seal => {
            if node.seal(holder, client.grants[at], client.grant, config.variant.seal)
                && client.phase == Phase::Round
            {
                client.sealed.insert(id);
            }
        }
        Message::Release => node.release(holder, client.token),
        Message::Renew => {
            if let Some(token) = node.renew(holder, client.grant)
                && token > client.token
            {
                client.renewals[at] = token;
            }
        }
        Message::Raise | Message::RaiseUnheard => {
            let reissue = &mut client.reissue;
            if let Some(counter) = node.raise(holder, client.grant, reissue.above)
                && message == Message::Raise
                && reissue.under_way
                && !reissue.counted.contains(id)
            {
                reissue.raised[at] = counter;
            }
        }
        Message::Raised => client.count_raise(id),
        Message::Reissue => {
            let reissue = &mut client.reissue;
            if node.reissue(holder, client.grant, reissue.token) && reissue.under_way {
                reissue.sealed.insert(id);
            }
        }
    }
}

/// Whether a node gives a client its vote: it is admitted, under the run_id that the client has seen.
pub(crate) fn has_vote(config: &Config, node: &Node, client: &Client, id: NodeId) -> bool {
    config.variant.admission == variant::Admission::None
        || node.admitted() && !client.restarted.contains(id)
}
