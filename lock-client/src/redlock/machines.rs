//! The decisions of a client, without I/O.
//!
//! A machine takes events, and returns commands. [`Acquire`](acquire::Acquire) decides a round,
//! [`Update`](update::Update) a renewal or a reissue, and [`Regain`](regain::Regain) what a
//! lease does about the nodes that it does not have. `round.rs`, `update.rs` and `regain.rs` in
//! the folder above carry the messages: they send what a machine commands, and report each answer to
//! it.
//!
//! The model in `redlock-model` explores these machines in every order of events. It compiles these
//! files by their path, with the numbers of a `numbers.rs` of its own. A crate for both would have to
//! be generic in its numbers, and to be published.

pub(crate) mod acquire;
pub(crate) mod lease_tokens;
pub(crate) mod regain;
pub(crate) mod takeover;
pub(crate) mod update;
pub(crate) mod votes;

use super::{
    majority::majority,
    numbers::{Address, Cluster, MaxTtl, PerNode, Process, Term, Token},
};
