//! Locks on a majority of independent nodes.

mod acquiring;
mod cluster;
mod far_nodes;
mod holding;
mod joining;
mod kept_connections;
mod members;
mod proxies;
mod scripts;
mod seeded;
mod waiting;
