//! The network, which delays, loses and duplicates messages.
//!
//! A request stays in the network for ever: once sent, it may be delivered at any time, any number
//! of times, or never, even long after its client has ended. So the network needs no state of its
//! own: what the clients have sent determines which messages it holds.
//!
//! Answers may be late or lost, too. The answer to a grant or a raise waits in the client's state
//! until the client receives it, in a step of its own. The answers to seals, renewals and joins
//! arrive in the same step as the request. That is equivalent: the client only uses them to draw a
//! conclusion, and it may do so later or never. A node that the client does not know to have joined
//! refuses its other requests, as if they were lost.

use crate::{
    client::{Client, Phase},
    config::{Config, Delivery, Rounds},
    id::{Holder, NodeId},
    node::Node,
    protocol::{AdmissionRule, ReissueRule, ReleaseRule, SealRule},
    state::State,
};

/// A message that is delivered: a request to a node, or a node's answer.
///
/// The answers to grants and raises are messages of their own. A variant `…AnswerLost` delivers
/// such a request once more and loses the new answer, so that the client may still receive the
/// earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// The request for a grant.
    Grant,
    /// The same request, and its answer is lost.
    GrantAnswerLost,
    /// The answer: a node's grant.
    GrantAnswer,
    /// The request to seal a node with the round's token.
    Seal,
    /// The request to free the lock.
    Release,
    /// The request to renew, which returns the lock's token.
    Renew,
    /// The request to take a free node for the lease.
    Join,
    /// The same request, with the token that the lease had at first.
    EarlyJoin,
    /// The request to raise the counter above a token: the first half of a reissue.
    Raise,
    /// The same request, and its answer is lost.
    RaiseAnswerLost,
    /// The answer: a node's raised counter.
    RaiseAnswer,
    /// The request to seal a node with a reissued token: the second half of a reissue.
    SealReissued,
}

impl Message {
    const ALL: [Self; 12] = [
        Self::Grant,
        Self::GrantAnswerLost,
        Self::GrantAnswer,
        Self::Seal,
        Self::Release,
        Self::Renew,
        Self::Join,
        Self::EarlyJoin,
        Self::Raise,
        Self::RaiseAnswerLost,
        Self::RaiseAnswer,
        Self::SealReissued,
    ];
}

/// The messages between a client and a node that may be delivered. Some of them change nothing.
pub(crate) fn messages(
    config: &Config,
    state: &State,
    holder: Holder,
    node: NodeId,
) -> impl Iterator<Item = Message> {
    let client = *state.client(holder);
    let Config { protocol, joins, grant_requests, .. } = *config;
    let reissue = client.reissue;
    let grant_sent = match grant_requests {
        _ if config.rounds != Rounds::StepByStep => false,
        Delivery::Anytime => true,
        Delivery::Once => !client.has_ended() && !client.asked.contains(node),
    };
    let grant_awaited = accepts_grants(&client, node) && client.grants[node.index()] != 0;
    let release_sent = match protocol.release {
        ReleaseRule::ToAllNodes => client.has_ended(),
        ReleaseRule::ToKnownGranters => client.has_ended() && client.received.contains(node),
    };
    let join_sent = joins && client.has_acquired();
    let raise_sent = client.has_acquired() && reissue.started > 0;
    let raise_awaited = accepts_raises(&client, node) && reissue.raised[node.index()] != 0;
    Message::ALL.into_iter().filter(move |message| match message {
        Message::Grant => grant_sent,
        Message::GrantAnswerLost => grant_sent && grant_awaited,
        Message::GrantAnswer => grant_awaited,
        Message::Seal => protocol.seal != SealRule::NoSeal && client.has_sent_seal(node),
        Message::Release => release_sent,
        Message::Renew => client.renewal.under_way,
        Message::Join => join_sent,
        Message::EarlyJoin => join_sent && client.grant < client.token,
        Message::Raise => raise_sent,
        Message::RaiseAnswerLost => raise_sent && raise_awaited,
        Message::RaiseAnswer => raise_awaited,
        Message::SealReissued => {
            client.has_acquired()
                && reissue.token != 0
                && protocol.reissue != ReissueRule::RaisesOnly
        }
    })
}

/// Delivers a message: changes the node by a script, and the client by the answer.
pub(crate) fn deliver(
    config: &Config,
    state: &mut State,
    holder: Holder,
    id: NodeId,
    message: Message,
) {
    let client = &mut state.clients[holder.index()];
    let node = &mut state.nodes[id.index()];
    let needs_vote =
        !matches!(message, Message::GrantAnswer | Message::RaiseAnswer | Message::Release);
    if needs_vote && !has_vote(config, node, client, id) {
        return;
    }
    match message {
        Message::Grant | Message::GrantAnswerLost => {
            client.start_round(state.history.highest_issued());
            if config.grant_requests == Delivery::Once {
                client.asked.insert(id);
            }
            if let Some(grant) = node.grant(holder)
                && message == Message::Grant
                && accepts_grants(client, id)
            {
                client.grants[id.index()] = grant.number;
            }
        }
        Message::GrantAnswer => client.receive_grant(id, config.nodes, config.protocol.grant),
        Message::Seal => {
            let grant = client.grants[id.index()];
            let grants = [grant, client.grant];
            let sealed = node.seal(holder, grants, client.grant, config.protocol.seal);
            if sealed.is_some() && client.phase == Phase::Round {
                client.sealed.insert(id);
            }
        }
        Message::Release => _ = node.release(holder, client.token),
        Message::Renew => {
            if let Some(answer) = node.renew(holder, client.grant_on(id))
                && config.protocol.join.counts_in_renewal(answer.floor, client.token)
            {
                client.renewal.receive(id, answer.number);
            }
        }
        Message::Join | Message::EarlyJoin => {
            let token = if message == Message::Join { client.token } else { client.grant };
            if let Some(joined) = node.join(holder, client.grant, token, config.protocol.join)
                && client.phase == Phase::Lease
            {
                client.join(id, joined.number);
            }
        }
        Message::Raise | Message::RaiseAnswerLost => {
            if let Some(raised) = node.raise(holder, client.grant_on(id), client.reissue.above)
                && message == Message::Raise
                && accepts_raises(client, id)
            {
                client.reissue.raised[id.index()] = raised.number;
            }
        }
        Message::RaiseAnswer => client.reissue.receive(id, config.nodes),
        Message::SealReissued => {
            let grants = [client.grant_on(id); 2];
            let token = client.reissue.token;
            if let Some(sealed) = node.seal(holder, grants, token, SealRule::ComparesOwnership)
                && config.protocol.join.counts_in_reissue(sealed.floor, client.token)
                && client.reissue.under_way
            {
                client.reissue.sealed.insert(id);
            }
        }
    }
}

/// Whether a node votes for a client: it is admitted, and under the `run_id` that the client knows.
pub(crate) fn has_vote(config: &Config, node: &Node, client: &Client, id: NodeId) -> bool {
    config.protocol.admission == AdmissionRule::NoAdmission
        || node.is_admitted() && !client.restarted.contains(id)
}

/// Whether the client would still use this node's grant.
fn accepts_grants(client: &Client, node: NodeId) -> bool {
    matches!(client.phase, Phase::Round | Phase::Lease) && !client.received.contains(node)
}

/// Whether the client would still use this node's answer to a raise.
fn accepts_raises(client: &Client, node: NodeId) -> bool {
    client.reissue.under_way && !client.reissue.received.contains(node)
}
