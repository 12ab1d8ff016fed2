//! The commands with a Redlock cluster.

mod admission;
mod changing;
mod commands;
mod doctor;
mod faults;
mod fitness;
mod loss_of_majority;
mod node_commands;
mod nodes;
mod watching;
