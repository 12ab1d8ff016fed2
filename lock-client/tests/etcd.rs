//! Locks in etcd.

mod certificates;
pub(crate) mod connections;
mod corrupted;
mod errors;
mod hanging;
mod holding;
mod lost_replies;
mod reissue;
mod releases;
pub(crate) mod service;
mod sessions;
mod turns;
