//! Locks on a majority of independent nodes.

mod acquiring;
mod cluster;
mod holding;
mod seeded;
mod waiting;
