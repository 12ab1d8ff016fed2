//! The command `lab`: its scenarios, its hammer and its benches.

mod bench;
mod hammer;
mod replay;
