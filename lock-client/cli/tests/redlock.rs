//! The commands with a Redlock cluster.

mod admission;
mod commands;
mod doctor;
mod faults;
mod fitness;
mod new_start;
mod node_commands;
mod nodes;
mod replacing;
mod start_again;
mod watching;
