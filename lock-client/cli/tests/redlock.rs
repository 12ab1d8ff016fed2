//! The commands for a lock on a majority of nodes.

mod admission;
mod commands;
mod doctor;
mod node_commands;
mod nodes;
