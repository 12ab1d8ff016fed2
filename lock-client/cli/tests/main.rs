//! The command `lock-client`, on Redis servers of its own.

#[path = "../../tests/redlock/cluster.rs"]
mod cluster;
mod command;
mod doctor;
mod handle;
#[path = "../../tests/lock_service.rs"]
mod lock_service;
#[path = "../../../fence/tests/names.rs"]
mod names;
mod programs;
mod redlock;
mod run;
mod run_losing_its_lease;
mod run_nested;
mod run_signals;
mod tls;
mod watch;
