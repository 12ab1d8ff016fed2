//! The storage server, from outside: real servers, each private to one test.

mod bad_input;
mod contract;
mod enforcement;
mod on_both_databases;
mod programs;
mod start_and_stop;
mod wire;
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod world;
