//! Locks on a majority of independent nodes.

mod admission;
mod cluster;
mod commands;
mod doctor;
mod holding;
mod node_commands;
mod nodes;
mod seeded;
mod taking;
mod waiting;
