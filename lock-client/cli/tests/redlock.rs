//! The commands with a Redlock cluster.

mod admission;
mod changing;
mod commands;
mod doctor;
mod faults;
mod node_commands;
mod nodes;
mod watching;
