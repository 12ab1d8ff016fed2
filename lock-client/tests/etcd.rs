//! Locks in etcd.

mod cluster;
mod corrupted;
mod errors;
mod holding;
mod lost_replies;
mod reissue;
mod service;
mod waiting;
