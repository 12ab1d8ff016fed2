//! Locks in ZooKeeper.

mod adopting;
mod cluster;
mod connections;
mod errors;
mod expired;
mod holding;
mod lossy_network;
mod lost_replies;
mod reissue;
pub(crate) mod service;
mod shortened;
mod strike;
mod waiting;
