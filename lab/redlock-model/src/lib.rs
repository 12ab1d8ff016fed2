//! A model of Fenced Redlock, all of whose states are checked.
//!
//! Three nodes, of which two are a majority; two or three clients; a [network](Message) in which
//! requests are late, repeated and lost, and answers are late and lost; locks that expire at any
//! moment, so that no clock is trusted; nodes that restart without their memory; and a fenced storage
//! that the clients read and write. The source is Redlock (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>)
//! with what section 8 of the design adds to it.
//!
//! Where to start:
//! - `node`: the scripts. Each method is to be compared, line by line, with the script that it names.
//! - `client`: one round, its lease, its reissue; `network`: what may be delivered when, and what then
//!   happens; `storage`: the rule.
//! - `action`: every step that there is, the network's among them; `model`: what each of them does;
//!   `state`: what they change.
//! - [`properties`]: what has to hold always, and what has to be reached for that to mean something;
//!   `liveness`: that there is always a way to acquire again.
//! - [`variant`]: the protocol, and the ways to break it, each of which the tests have to find.
//! - [`Config`]: what is in a model. No single one has everything: with all of it there would be too
//!   many states. The tests say which has what, and `make model` checks larger ones.
//! - `symmetry` and `oblivion`: which states count as one, and why that is sound; `at_once`: rounds
//!   that take one step, for the models of the storage.
//!
//! What is assumed, and not shown: that a node which restarts loses all or nothing, and gets its vote
//! back only after every round, renewal and reissue from before has ended (the wait sees to that, as
//! long as monotonic clocks run alike); and that counters start at 0, where a missing one really starts
//! at the time.

mod action;
mod at_once;
mod client;
mod config;
mod effect;
mod enabled;
mod history;
mod id;
mod liveness;
mod model;
mod network;
mod node;
mod oblivion;
pub mod properties;
mod state;
mod storage;
mod symmetry;
pub mod variant;
mod verdict;

pub use action::Action;
pub use config::{Config, Grants, Judged, Rounds};
pub use id::{Holder, MOST_CLIENTS, NodeId, Nodes};
pub use liveness::{Liveness, check_liveness};
pub use model::Redlock;
pub use network::Message;
pub use state::State;
pub use variant::Variant;
pub use verdict::{Verdict, check};
