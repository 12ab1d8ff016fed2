//! What is in a model, and how much of it.

use crate::{id::Token, variant::Variant};

/// The limits of a model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many clients there are, each with one round: 1 to [`MOST_CLIENTS`](crate::MOST_CLIENTS).
    pub clients: usize,
    /// The number that no counter passes: whatever would raise it further doesn't happen.
    pub highest_counter: Token,
    /// The counters start anywhere between 0 and this, as if rounds had been given up before.
    pub uneven_start: Token,
    /// Whether what clients ask of the nodes takes its time.
    pub rounds: Rounds,
    /// How often, and how late, a grant may be delivered.
    pub grants: Grants,
    /// How many reissues a lease may begin. What one has sent is lost once another begins.
    pub reissues: u8,
    /// Whether leases are renewed.
    pub renewals: bool,
    /// Whether there is a storage, which the clients read and write.
    pub storage: bool,
    /// How many restarts of nodes there may be, each of which loses locks and counters.
    pub restarts: u8,
    /// Of what has to hold, what is looked at.
    pub judged: Judged,
    /// How the protocol is followed.
    pub variant: Variant,
    /// Whether states that differ only in how nodes and clients are numbered count as one.
    pub symmetry: bool,
}

/// Whether what clients ask of the nodes takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// Each request is a step, and each answer to it another.
    StepByStep,
    /// A round is one step, and a reissue is, on any M nodes or more.
    AtOnce,
}

/// How often, and how late, a grant may be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grants {
    /// Once to each node, and not after the client has given up or released.
    Once,
    /// As often and as late as the network likes.
    Anytime,
}

/// Of what has to hold, what is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// The tokens and the writes.
    All,
    /// The writes alone: those must not be lost even where tokens are told twice.
    Writes,
}

impl Config {
    /// Two clients, and nothing but grants, seals, releases and expiry. Tokens go to 3.
    pub const TWO_CLIENTS: Self = Self {
        clients: 2,
        highest_counter: 3,
        uneven_start: 1,
        rounds: Rounds::StepByStep,
        grants: Grants::Once,
        reissues: 0,
        renewals: false,
        storage: false,
        restarts: 0,
        judged: Judged::All,
        variant: Variant::AS_BUILT,
        symmetry: true,
    };
}
