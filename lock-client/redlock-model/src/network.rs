//! The network, which delays, loses and duplicates messages.
//!
//! A request stays in the network for ever: once sent, it may be delivered at any time, any number
//! of times, or never, even long after its client has ended. So the network needs no state of its
//! own: what the clients have sent determines which messages it holds.
//!
//! Answers may be late or lost, too. The answer to a grant or a raise waits in the client's state
//! until the client receives it, in a step of its own. Other answers arrive in the same step as the
//! request. That is equivalent: a node may process a request later, and everything that a client does
//! with an answer may happen later, or never. A rejected grant has no answer. Without one, the client
//! may give up, too.

use std::mem;

use crate::{
    client::{Client, Phase, Sent},
    config::Config,
    fault::Fault,
    id::{Holder, NodeId},
    node::{Node, Owned},
    redlock::machines::{
        acquire::Answer,
        update::Request,
        votes::{self, Event, OwnerReply},
    },
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

/// The messages between a client and a node that may be delivered. Some of them change nothing.
pub(crate) fn messages(
    config: &Config,
    state: &State,
    holder: Holder,
    node: NodeId,
) -> impl Iterator<Item = Message> {
    let client = *state.client(holder);
    let Config { fault, joins, late_grants, .. } = *config;
    let Client { sent, .. } = client;
    let index = node.index();
    let grant_sent = !config.atomic_acquires
        && (late_grants || !client.has_ended() && !sent.asked.contains(node));
    let release_sent = client.has_ended()
        && (fault != Some(Fault::ReleaseToKnownGranters) || client.granters().contains(node));
    let join_sent = joins && client.has_acquired();
    let raise_sent = client.has_acquired() && sent.raise_above != 0;
    let renew_sent = client.request() == Some(Request::Renew) && client.awaits_answer(node);
    let messages = [
        (Message::Grant, grant_sent),
        (Message::GrantAnswerLost, grant_sent && sent.grants[index] != 0),
        (Message::GrantAnswer, sent.grants[index] != 0),
        (Message::Seal, sent.seals[index] != 0),
        (Message::Release, release_sent),
        (Message::Renew, renew_sent),
        (Message::Join, join_sent),
        (Message::EarlyJoin, join_sent && client.grant < client.height()),
        (Message::Raise, raise_sent),
        (Message::RaiseAnswerLost, raise_sent && sent.raised[index] != 0),
        (Message::RaiseAnswer, sent.raised[index] != 0),
        (Message::SealReissued, client.has_acquired() && sent.reissued != 0),
    ];
    messages.into_iter().filter(|(_, is_sent)| *is_sent).map(|(message, _)| message)
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
    let (index, fault) = (id.index(), config.fault);
    let owner = client.owner(holder);
    match message {
        Message::Grant | Message::GrantAnswerLost => {
            client.start_round(config.nodes, state.history.highest_issued());
            if !config.late_grants {
                client.sent.asked.insert(id);
            }
            if let Some(grant) = node.grant(owner)
                && message == Message::Grant
                && client.awaits_grant(id)
            {
                client.sent.grants[index] = grant.number;
            }
        }
        Message::GrantAnswer => {
            let grant = mem::take(&mut client.sent.grants[index]);
            client.receive_grant(id, grant, fault);
        }
        Message::Seal => {
            let Sent { seals, token, .. } = client.sent;
            let sealed = node.seal(owner, [seals[index], token], token, fault);
            if client.awaits_seal(id) {
                let answer = sealed.map_or(Answer::Rejected, |_| Answer::Sealed);
                client.count_in_round(index, answer, fault);
            }
        }
        Message::Release => _ = node.release(owner, client.release_token()),
        Message::Renew => {
            let renewed = node.renew(owner, client.grant_on(id));
            client.count(Event::Answer(index, reply(renewed, node, owner)), fault);
        }
        Message::Join | Message::EarlyJoin => {
            let token = if message == Message::Join { client.height() } else { client.grant };
            if let Some(joined) = node.join(owner, client.grant, token, fault)
                && client.phase == Phase::Lease
            {
                client.learn(index, joined.number);
            }
        }
        Message::Raise | Message::RaiseAnswerLost => {
            let raised = node.raise(owner, client.grant_on(id), client.sent.raise_above);
            let is_awaited = message == Message::Raise
                && matches!(client.request(), Some(Request::Raise { .. }))
                && client.awaits_answer(id);
            match raised {
                Some(raised) if is_awaited => client.sent.raised[index] = raised.number,
                // A rejection changes no node, so its answer needs no step of its own.
                None if is_awaited && client.sent.raised[index] == 0 => {
                    client.count(Event::Answer(index, reply(None, node, owner)), fault);
                }
                _ => {}
            }
        }
        Message::RaiseAnswer => {
            let number = mem::take(&mut client.sent.raised[index]);
            let raised = OwnerReply::Owned(votes::Owned { number, floor: None });
            client.count(Event::Answer(index, raised), fault);
        }
        Message::SealReissued => {
            let token = client.sent.reissued;
            let grants = [client.grant_on(id); 2];
            let sealed = node.seal(owner, grants, token, None);
            if client.request() == Some(Request::Seal { token }) && client.awaits_answer(id) {
                client.count(Event::Answer(index, reply(sealed, node, owner)), fault);
            }
        }
    }
}

/// A node's reply to the holder: what a script returned, or why it rejected.
pub(crate) fn reply(answer: Option<Owned>, node: &Node, holder: Holder) -> OwnerReply {
    match (answer, node.lock.filter(|lock| lock.holder == holder)) {
        (Some(Owned { number, floor }), _) => {
            let floor = (floor != 0).then_some(floor);
            OwnerReply::Owned(votes::Owned { number, floor })
        }
        (None, Some(lock)) => OwnerReply::Other { grant: lock.grant },
        (None, None) => OwnerReply::NotOurs,
    }
}

/// A renewal or a reissue gets no more answers, except from nodes that reject it now. The nodes answer
/// in an order that does not depend on their numbers.
pub(crate) fn time_out(config: &Config, state: &mut State, holder: Holder) {
    let State { clients, nodes, .. } = state;
    let client = &mut clients[holder.index()];
    let owner = client.owner(holder);
    let silent = NodeId::first(config.nodes).filter(|id| client.awaits_answer(*id));
    let mut last: Vec<_> = silent
        .map(|id| {
            let node = &nodes[id.index()];
            let rejects = !node.is_owned_by(owner, client.grant_on(id));
            (id, rejects.then(|| reply(None, node, owner)))
        })
        .collect();
    last.sort_by_key(|(_, rejection)| match rejection {
        Some(OwnerReply::Other { .. }) => 0,
        Some(_) => 1,
        None => 2,
    });
    for (id, rejection) in last {
        let event = rejection
            .map_or(Event::Failed(id.index()), |rejection| Event::Answer(id.index(), rejection));
        client.count(event, config.fault);
        // The update has ended, or has asked all nodes again.
        if client.update.is_none() || client.awaits_answer(id) {
            return;
        }
    }
}
