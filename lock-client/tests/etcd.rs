//! Locks in etcd.

mod corrupted;
mod errors;
mod holding;
mod lost_replies;
mod reissue;
pub(crate) mod service;
mod shared_leases;
mod turns;
