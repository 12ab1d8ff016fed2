//! The command `lock-client`: runs commands under locks that hand out fencing tokens.
//!
//! # The code
//! Start with `cli`, which lists the subcommands; each is a module of its own name. `run` is the
//! largest, and has a folder; `run/lost_lease.rs` decides what happens to the child when its lease
//! is lost. `exit_code` lists the exit codes, and `failure` maps errors to them. `lock_service` and
//! `storage` name the servers.
//!
//! Results go to stdout, one JSON object per line. Messages, logs and, on a terminal, the progress of
//! a wait go to stderr.

mod cli;
mod exit_code;
mod failure;
mod program;

mod acquire;
mod break_lock;
mod doctor;
mod get;
mod list;
mod node;
mod put;
mod run;
mod self_description;
mod status;
mod watch;

mod acquisition;
mod environment;
mod handle;
mod lock_service;
mod process;
mod signals;
mod stderr;
mod stdout;
mod storage;
mod waiting;

pub use lock_service::{HeldLocks, InvalidUrls};
pub use program::{main, run};
