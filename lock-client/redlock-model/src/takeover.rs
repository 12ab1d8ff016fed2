//! A second model: other processes take the seats of members, while clients acquire and renew.
//!
//! # What is modelled
//!
//! The operators and watchers drive the machine of `lock-client`
//! (`src/redlock/machines/takeover.rs`), which decides everything, and says what the protocol is. Here
//! are
//!
//! - three or five seats. New processes start at the addresses of members, empty or with a copy of the
//!   old data. The old processes go on running, and may vote for as long as nothing closes them.
//! - one or two operators, of which the first may move a seat to another address. Each may stop at any
//!   step, receive the answers of any processes, or of none. Its requests stay in the network: each may
//!   be delivered at any time, and repeatedly.
//! - one or two clients. Each acquires once, in one step or in many, under any roster that some process
//!   votes for, and renews its lease, also under later rosters, and joins free nodes. An ended lease may be renewed
//!   once: another process has its handle.
//! - locks that expire early, so that tokens depend on no clock; or only with their lease, so that leases
//!   must exclude each other.
//!
//! # What is left out
//!
//! - Late requests and answers of a round, and reissues. The first model has them, without rosters.
//! - Time. A wait is over when everything that was under way has ended, as if clocks ran at the same
//!   speed.
//! - A process that keeps its `run_id` and loses data.
//! - A process that answers at two addresses.
//! - Three changes of three seats, and two of five to the end: neither model ended within four minutes.
//!
//! No single model has everything; each test says what its model has. The negative controls are the
//! variants of [`Fault`]. Where a broken rule has its consequence only after many steps, the first ones are
//! prescribed ([`Config::script`]): the machine takes them, and every state after them is explored, with
//! and without the fault.
//!
//! The control of a laggard that jumps to a later seat breaks two rules at once. Two rules have no control of
//! their own:
//!
//! - A member without a vote never counts as closed. It is redundant: a term begins only if M voters stay,
//!   so that one such member at most does. With it, M - 1 voters close, and fewer than M are left.
//!   `UnadmittedCounts` shows what it does to a copy.
//! - A source of a copy holds the new roster, before and after. With three seats, all members that stay have
//!   closed by then. With five, the copy comes after the wait, when all rounds under the old roster have ended.
//!
//! `decisions` has what no property of a model shows: single decisions of the machine.

mod client;
mod config;
#[cfg(test)]
mod decisions;
mod model;
mod operator;
mod process;
mod state;

pub use config::{Config, Fault};
pub use model::{LEASES_EXCLUDE, ONE_ELECTORATE, Situation};
pub use state::State;
