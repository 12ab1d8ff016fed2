//! What a model contains, and its limits.

use crate::{fault::Fault, id::Token};

/// The limits of a model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The number of nodes: 3 or 5.
    pub nodes: usize,
    /// The number of clients, with one round each: 1 to [`MOST_CLIENTS`](crate::MOST_CLIENTS).
    pub clients: usize,
    /// The limit of every counter. The model leaves out any step that passes it.
    pub highest_counter: Token,
    /// Each counter starts anywhere from 0 to this, as abandoned rounds might have left it.
    pub highest_initial_counter: Token,
    /// Whether a whole round is one step on any majority of nodes. Otherwise each request is one step, and
    /// each answer another.
    pub atomic_acquires: bool,
    /// Whether a request for a grant may be delivered any number of times, at any time. If not, it is delivered
    /// once to each node, and never after the client has given up or released.
    pub late_grants: bool,
    /// How many reissues a lease may start. Starting one loses all messages of the one before it.
    pub reissues: u8,
    /// Whether clients renew their leases.
    pub renewals: bool,
    /// Whether leases join free nodes.
    pub joins: bool,
    /// Whether the last client acquires nothing, but adopts the lease of the first: two processes have one
    /// handle, and renew and reissue at once. The others only acquire.
    pub adopts: bool,
    /// Whether failed tries of other clients raise the counters of free nodes.
    pub failed_tries: bool,
    /// Whether locks expire at any moment, so that the model trusts no clock; or never, so that only a release
    /// frees one.
    pub expiry: bool,
    /// The rule that is broken; `None` for the protocol as built.
    pub fault: Option<Fault>,
}

impl Config {
    /// Two clients, with grants, seals, releases and expiry only. Tokens go up to 3.
    pub const TWO_CLIENTS: Self = Self {
        nodes: 3,
        clients: 2,
        highest_counter: 3,
        highest_initial_counter: 1,
        atomic_acquires: false,
        late_grants: false,
        reissues: 0,
        renewals: false,
        joins: false,
        adopts: false,
        failed_tries: false,
        expiry: true,
        fault: None,
    };
}
