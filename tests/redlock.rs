//! Locks on a majority of independent nodes.

mod cluster;
mod holding;
mod taking;
mod waiting;
