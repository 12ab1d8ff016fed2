//! Locks on a majority of independent nodes.

mod cluster;
mod holding;
mod seeded;
mod taking;
mod waiting;
