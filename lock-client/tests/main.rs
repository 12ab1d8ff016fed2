//! The library of locks, on servers of its own.

mod acquiring;
mod client_certificates;
mod conformance;
mod connection_counts;
mod connections;
mod etcd;
mod idle_connections;
mod kept_connections;
mod leases;
mod lock_service;
mod lossy_service;
mod lost_replies;
mod mariadb;
mod metrics;
mod missed_wakeups;
#[path = "../../fence/tests/names.rs"]
mod names;
mod owners;
mod pitfalls;
mod postgres;
mod quorum;
mod redis_kinds;
mod redlock;
mod redlock_node_alone;
mod sentinels;
mod silent_waiters;
mod slow_network;
mod sql;
mod sqlite;
mod start_cluster;
mod subscriptions;
mod waiting;
mod wrong_addresses;
mod zookeeper;
