//! Locks on a majority of independent nodes.

mod acquiring;
mod cluster;
mod far_nodes;
mod holding;
mod proxies;
mod seeded;
mod waiting;
