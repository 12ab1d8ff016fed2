//! Locks in ZooKeeper.

mod adopting;
mod certificates;
mod cluster;
mod connections;
mod errors;
mod expired;
mod holding;
mod lossy_network;
mod lost_replies;
mod proofs;
mod reissue;
pub(crate) mod service;
mod sessions;
mod shortened;
mod strike;
mod waiting;
