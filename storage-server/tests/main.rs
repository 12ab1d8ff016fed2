//! The storage server, from outside: real servers, each private to one test.

mod access;
mod bad_input;
mod bodies;
mod ceiling;
mod connections;
mod contract;
mod database;
mod enforcement;
mod fence_command;
mod floor;
mod forget;
mod hosts;
mod lists;
mod logs;
mod migrations;
mod on_both_databases;
mod plans;
mod pooler;
mod programs;
mod readiness;
mod restore;
mod sqlite_file;
mod start_and_stop;
mod unreadable_rows;
mod wire;
mod world;
