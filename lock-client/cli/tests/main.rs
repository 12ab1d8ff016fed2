//! The command `lock-client`, on lock services of its own.

#[path = "../../tests/redlock/cluster.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod cluster;
mod command;
mod doctor;
mod each_service;
mod handle;
mod list;
#[path = "../../tests/lock_service.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod lock_service;
#[path = "../../../fence/tests/names.rs"]
#[expect(dead_code, reason = "each package of tests uses a part of it")]
mod names;
mod options;
mod owners;
mod programs;
mod redlock;
mod run;
mod run_descendants;
mod run_killed;
mod run_losing_its_lease;
mod run_nested;
mod run_signals;
mod run_status_fd;
mod run_stopping;
mod run_terminal;
mod services;
#[path = "../../tests/start_cluster.rs"]
mod start_cluster;
mod terminal;
mod tls;
mod waiting;
mod watch;
mod wrong_input;
