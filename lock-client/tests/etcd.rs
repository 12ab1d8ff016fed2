//! Locks in etcd.

mod certificates;
mod connections;
mod corrupted;
mod errors;
mod holding;
mod lost_replies;
mod reissue;
pub(crate) mod service;
mod sessions;
mod turns;
