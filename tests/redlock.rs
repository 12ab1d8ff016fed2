//! Locks on a majority of independent nodes.

mod cluster;
mod commands;
mod holding;
mod taking;
mod waiting;
