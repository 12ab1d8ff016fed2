//! Locks in ZooKeeper.

mod adopting;
mod cluster;
mod connections;
mod errors;
mod holding;
mod lost_replies;
mod reissue;
mod service;
mod strike;
mod waiting;
