//! A model of Fenced Redlock, and checks that explore every state of it.
//!
//! Redlock (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>) acquires a lock
//! on a majority of independent nodes, and as published it issues no fencing token. Fenced Redlock
//! adds one:
//!
//! 1. Each node counts its grants. The highest of M grants (M is a majority) becomes the *token*.
//! 2. A *seal* raises the counter of a node with a lower grant to the token. With M nodes sealed,
//!    the client holds the lock, and any later majority includes a node whose next grant is higher.
//! 3. A *reissue* swaps a lease's token for a higher one: it *raises* M counters, and seals M
//!    nodes.
//! 4. A *join* takes a free node for a lease. The lock records its *floor*, the counter before that.
//!    A node counts for a lease only if its floor is not above the lease's token.
//! 5. A restarted node may have lost its counter, so it must not vote until it has [taken the
//!    seat](takeover) of its process before.
//!
//! # Start here
//!
//! Read in this order. Each module imports only modules before it.
//!
//! - The configuration: `id` has tokens, holders and nodes. `fault` has the rules
//!   that a control breaks. `config` has the limits of a model.
//! - The state: [`node`] has the scripts; compare each method with the Lua script that it names.
//!   `client` has a round, its lease, and the messages that it has sent. `history` has the tokens issued
//!   so far. `state` puts them together.
//! - The steps: `network` has the messages between clients and nodes, `updates` the start and the
//!   end of a renewal or a reissue. `steps` lists all steps, and says when each is possible and what it does.
//! - Fewer states: `dead_variables` and `symmetry` merge equivalent states, and say why that is
//!   sound.
//! - The checks: [`properties`] says what must hold. `model` is what stateright explores. `check`
//!   and `liveness` explore it.
//!
//! [`takeover`] is a second, separate model: other processes take the seats of members. [`storage`] is a third:
//! clients that read and write a fenced storage, whatever tokens they have.
//!
//! The tests are the best examples. No single model has everything, because it would have too many
//! states: each test says what its model has. `examples/explore.rs` checks larger ones.
//!
//! # The machines
//!
//! A client decides nothing here. It carries the events and commands of the machines in
//! `lock-client/src/redlock/machines.rs`, which are compiled as they are, with smaller numbers. So an
//! error in one of them violates a property here. A test in `lock-client` compares the scripts with
//! [`node`].
//!
//! # What is modelled
//!
//! - One lock on three or five nodes, and two or three clients.
//! - A network that delays, repeats and loses requests, and delays and loses answers.
//! - Locks that expire at any moment, so that no property depends on a clock.
//! - Leases that join free nodes, whose counters others may have raised.
//! - Renewals and reissues, which may overlap with late messages of earlier ones. A renewal that finds
//!   a half-done reissue completes it. A reissue makes joined nodes count.
//! - Two processes that have one handle, and so one lease: both renew and reissue it at once.
//!
//! # What is left out
//!
//! - Counters start at 0 or a little above. A missing counter really starts at the current time.
//! - There are no ttls, no waiting clients and no retries: a client that tries again is another
//!   client.
//!
//! # Negative controls
//!
//! A check proves little unless it fails for a broken protocol. The tests therefore break one rule at a
//! time, each [`Fault`] of the three models, and require the model to find the consequence.

mod check;
mod client;
mod config;
mod dead_variables;
mod fault;
mod history;
mod id;
mod liveness;
mod model;
mod network;
pub mod node;
mod numbers;
pub mod properties;
mod state;
mod steps;
pub mod storage;
mod symmetry;
pub mod takeover;
mod updates;

/// The machines of `lock-client`, compiled with the numbers of the model.
#[expect(
    dead_code,
    clippy::clone_on_copy,
    clippy::unit_cmp,
    reason = "the models start clusters themselves, and a roster is made of numbers"
)]
#[path = "../../src/redlock"]
mod redlock {
    pub(crate) mod machines;
    pub(crate) mod majority;
    pub(crate) mod roster;

    use crate::numbers;
}

pub use check::{CheckLiveness, Explore, Report};
pub use config::Config;
pub use fault::Fault;
pub use id::{Holder, MOST_CLIENTS, MOST_NODES, NodeId, NodeSet, Token};
pub use liveness::LivenessReport;
pub use network::Message;
pub use redlock::majority::majority;
pub use state::State;
