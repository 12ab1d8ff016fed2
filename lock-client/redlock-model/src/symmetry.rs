//! One state for all states that differ only in the numbers of nodes and clients.
//!
//! No step depends on a node's or a client's number, and all of them start alike. The machines take
//! nodes by their places, but they only count votes and compare numbers. So if a step leads from one
//! state to another, the renumbered step leads from the renumbered state to the renumbered other.
//! [`representative`] only renumbers its argument, which makes it sound. How well its order is chosen
//! only decides how many states it saves. The steps to a state name nodes and clients by numbers that
//! change from step to step.

use std::{
    array,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{
    client::{Client, Sent},
    id::{Holder, MOST_CLIENTS, MOST_NODES, NodeId, NodeSet},
    node::Lock,
    redlock::machines::acquire::Acquire,
    state::State,
};

/// The state with its nodes and clients in an order that does not depend on their numbers.
///
/// Only the first `cluster` nodes and the first `clients` clients are renumbered: the others are not alike.
pub(crate) fn representative(state: &State, cluster: usize, clients: usize) -> State {
    let mut nodes: [NodeId; MOST_NODES] = array::from_fn(|node| NodeId(node as u8));
    let mut keys = [0; MOST_NODES];
    for node in &nodes[..cluster] {
        keys[node.index()] = node_key(state, *node);
    }
    nodes[..cluster].sort_unstable_by_key(|node| keys[node.index()]);
    let state = renumber_nodes(state, &nodes);

    let mut holders: [Holder; MOST_CLIENTS] = array::from_fn(|client| Holder(client as u8));
    let relations = holders.map(|holder| relation(&state, holder));
    holders[..clients].sort_by(|one, other| {
        let (one, other) = (one.index(), other.index());
        let order = relations[one].cmp(&relations[other]);
        order.then_with(|| state.clients[one].cmp(&state.clients[other]))
    });
    renumber_clients(&state, &holders)
}

/// A key to sort nodes by, which does not depend on the order of the clients.
fn node_key(state: &State, id: NodeId) -> u64 {
    let node = state.node(id);
    let index = id.index();
    let lock = node.lock.map(|lock| (lock.token, lock.grant, lock.floor));
    let own = hash(&lock);
    // A sum does not depend on the order of its terms.
    let clients = state.clients.iter().zip(0..).map(|(client, number)| {
        let Sent { asked, grants, seals, raised, .. } = client.sent;
        hash(&(
            (client.phase, client.token, client.grant, client.other_grants[index]),
            client.round.map(|round| round.votes.get(index).copied()),
            client.update.map(|update| update.votes.votes.get(index).copied()),
            (asked.contains(id), grants[index], seals[index], raised[index]),
            node.lock.is_some_and(|lock| lock.holder == Holder(number)),
        ))
    });
    // The counter comes first, so that printed states list the nodes by their counters.
    u64::from(node.counter) << 56 | (own.wrapping_add(clients.fold(0, u64::wrapping_add)) >> 8)
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The nodes whose lock names a client.
fn relation(state: &State, holder: Holder) -> NodeSet {
    NodeSet::from_condition(MOST_NODES, |node| {
        state.node(node).lock.is_some_and(|lock| lock.holder == holder)
    })
}

/// Renumbers the nodes. `order[new]` is a node's old number.
fn renumber_nodes(state: &State, order: &[NodeId; MOST_NODES]) -> State {
    fn each<T: Copy>(all: &[T; MOST_NODES], order: &[NodeId; MOST_NODES]) -> [T; MOST_NODES] {
        array::from_fn(|new| all[order[new].index()])
    }
    if order.is_sorted() {
        return *state;
    }
    let mut renumbered = *state;
    renumbered.nodes = each(&state.nodes, order);
    renumbered.clients = state.clients.map(|client| Client {
        round: client.round.map(|round| Acquire { votes: round.votes.renumbered(order), ..round }),
        other_grants: each(&client.other_grants, order),
        update: client.update.map(|mut update| {
            update.votes.votes = update.votes.votes.renumbered(order);
            update
        }),
        sent: Sent {
            asked: client.sent.asked.renumbered(order),
            grants: each(&client.sent.grants, order),
            seals: each(&client.sent.seals, order),
            raised: each(&client.sent.raised, order),
            ..client.sent
        },
        ..client
    });
    renumbered
}

/// Renumbers the clients. `order[new]` is a client's old number.
fn renumber_clients(state: &State, order: &[Holder; MOST_CLIENTS]) -> State {
    if order.is_sorted() {
        return *state;
    }
    let mut names = [Holder(0); MOST_CLIENTS];
    for (new, old) in (0..).zip(order) {
        names[old.index()] = Holder(new);
    }

    let mut renumbered = *state;
    for node in &mut renumbered.nodes {
        node.lock = node.lock.map(|lock| Lock { holder: names[lock.holder.index()], ..lock });
    }
    renumbered.clients = order.map(|old| state.clients[old.index()]);
    renumbered
}
