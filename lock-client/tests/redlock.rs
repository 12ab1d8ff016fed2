//! Locks on a majority of independent nodes.

mod acquiring;
mod cluster;
mod holding;
mod joining;
mod scripts;
mod seeded;
mod waiting;
