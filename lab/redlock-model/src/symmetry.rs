//! One state for all those that differ only in how nodes and clients are numbered.
//!
//! No step looks at the number of a node or of a client other than to find it, and all nodes and all
//! clients start alike: so whatever can happen from a state can happen, renumbered, from a renumbered
//! one. That is all that makes this sound, for every answer of [`representative`] is its argument
//! renumbered. How good the order is that it puts them in only decides how many states are saved.

use std::array;

use crate::{
    client::{Client, Reissue},
    id::{Holder, MOST_CLIENTS, NODES, NodeId, Nodes},
    node::{Lock, Node},
    state::State,
    storage::{Fence, Storage},
};

/// The state, with nodes and clients in an order that doesn't depend on their numbers.
///
/// Only the first `clients` take part.
pub(crate) fn representative(state: &State, clients: usize) -> State {
    let mut nodes: [NodeId; NODES] = array::from_fn(|node| NodeId(node as u8));
    let keys: [u64; NODES] = array::from_fn(|node| node_key(state, nodes[node]));
    nodes.sort_unstable_by_key(|node| keys[node.index()]);
    let state = with_nodes(state, &nodes);

    let mut holders: [Holder; MOST_CLIENTS] = array::from_fn(|client| Holder(client as u8));
    let relations: [_; MOST_CLIENTS] = array::from_fn(|client| relation(&state, holders[client]));
    holders[..clients].sort_by(|one, other| {
        let (one, other) = (one.index(), other.index());
        let order = relations[one].cmp(&relations[other]);
        order.then_with(|| {
            without_names(&state.clients[one]).cmp(&without_names(&state.clients[other]))
        })
    });
    with_clients(&state, &holders)
}

/// What tells a node from another, without a client's number.
fn node_key(state: &State, id: NodeId) -> u64 {
    let node = state.node(id);
    let own = [
        node.counter,
        node.lock.map_or(0, |lock| lock.token),
        node.lock.map_or(0, |lock| lock.grant),
        u8::from(node.admitted()),
    ];
    let at = id.index();
    // A sum doesn't depend on the order.
    let clients = state.clients.iter().zip(0..).map(|(client, number)| {
        let reissue = &client.reissue;
        mix(&[
            client.phase as u8,
            client.token,
            client.grant,
            client.grants[at],
            u8::from(client.asked.contains(id)),
            u8::from(client.counted.contains(id)),
            u8::from(client.sealed.contains(id)),
            u8::from(node.lock.is_some_and(|lock| lock.holder == Holder(number))),
            reissue.raised[at],
            u8::from(reissue.counted.contains(id)),
            u8::from(reissue.sealed.contains(id)),
            client.renewals[at],
            u8::from(client.restarted.contains(id)),
        ])
    });
    // The counter first, for those who read the states.
    u64::from(node.counter) << 56
        | (mix(&own).wrapping_add(clients.fold(0, u64::wrapping_add)) >> 8)
}

fn mix<const N: usize>(bytes: &[u8; N]) -> u64 {
    bytes.chunks(8).fold(0, |mixed: u64, chunk| {
        let word = chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        (mixed.rotate_left(29) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95)
    })
}

/// What others have of a client: locks, the fence, the value.
fn relation(state: &State, holder: Holder) -> (Nodes, bool, bool) {
    let is = |fence: Option<Fence>| fence.is_some_and(|fence| fence.holder == holder);
    let owned =
        Nodes::those(|node| state.node(node).lock.is_some_and(|lock| lock.holder == holder));
    (owned, is(state.storage.fence), is(state.storage.value))
}

fn without_names(client: &Client) -> Client {
    let read = client.read.map(|read| Fence { holder: Holder(0), ..read });
    Client { read, ..*client }
}

/// Renumbers the nodes: at each place is given which one was where before.
fn with_nodes(state: &State, order: &[NodeId; NODES]) -> State {
    fn each<T: Copy>(all: &[T; NODES], order: &[NodeId; NODES]) -> [T; NODES] {
        array::from_fn(|place| all[order[place].index()])
    }
    if order.is_sorted() {
        return *state;
    }
    let mut renumbered = *state;
    renumbered.nodes = each(&state.nodes, order)
        .map(|node| Node { admission: node.admission.reordered(order), ..node });
    renumbered.clients = state.clients.map(|client| Client {
        grants: each(&client.grants, order),
        asked: client.asked.reordered(order),
        counted: client.counted.reordered(order),
        sealed: client.sealed.reordered(order),
        renewals: each(&client.renewals, order),
        restarted: client.restarted.reordered(order),
        reissue: Reissue {
            raised: each(&client.reissue.raised, order),
            counted: client.reissue.counted.reordered(order),
            sealed: client.reissue.sealed.reordered(order),
            ..client.reissue
        },
        ..client
    });
    renumbered
}

/// Renumbers the clients, likewise.
fn with_clients(state: &State, order: &[Holder; MOST_CLIENTS]) -> State {
    if order.is_sorted() {
        return *state;
    }
    let mut names = [Holder(0); MOST_CLIENTS];
    for (place, was) in (0..).zip(order) {
        names[was.index()] = Holder(place);
    }
    let renamed = |holder: Holder| names[holder.index()];
    let renamed_fence =
        |fence: Option<Fence>| fence.map(|fence| Fence { holder: renamed(fence.holder), ..fence });

    let mut renumbered = *state;
    for node in &mut renumbered.nodes {
        node.lock = node.lock.map(|lock| Lock { holder: renamed(lock.holder), ..lock });
    }
    renumbered.clients = array::from_fn(|place| {
        let client = state.clients[order[place].index()];
        Client { read: renamed_fence(client.read), ..client }
    });
    renumbered.storage = Storage {
        fence: renamed_fence(state.storage.fence),
        value: renamed_fence(state.storage.value),
    };
    renumbered
}
