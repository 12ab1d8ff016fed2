//! The storage server, from outside: real servers, each private to one test.

mod access;
mod access_log;
mod audit_log;
mod audited_commands;
mod auth_file_changes;
mod bad_input;
mod bodies;
mod ceiling;
mod config_file;
mod connections;
mod contract;
mod database;
mod enforcement;
mod exposure;
mod failover;
mod fence_command;
mod floor;
mod forget;
mod hidden_reasons;
mod hosts;
mod http2;
#[cfg(target_os = "linux")]
mod image;
mod lists;
mod logs;
mod metrics;
mod migrations;
mod on_both_databases;
mod openapi;
mod plans;
mod pooler;
mod postgres_tls;
mod programs;
mod rate_limit;
mod readiness;
mod required_standbys;
#[cfg(target_os = "linux")]
mod restart;
mod restore;
mod sequence;
mod slow_network;
mod sqlite_file;
mod start_and_stop;
mod synchronous_replication;
mod terraform;
mod terraform_command;
mod tls;
mod tls_files;
mod transactions;
mod transactions_in_flight;
#[cfg(target_os = "linux")]
mod unit;
mod unreadable_rows;
mod wanted_values;
mod wire;
mod world;
