//! End-to-end tests: real servers and real clients, each test with its own.

mod bad_input;
mod conformance;
mod contract;
mod crashes;
mod database_hammer;
mod enforcement;
mod fence_in_mariadb;
mod fence_in_postgres;
mod fence_in_redis;
mod fence_in_sqlite;
mod hammer;
mod languages;
mod leases;
mod lock_command;
mod locks;
mod proxy;
mod redis_kinds;
mod redis_servers;
mod replay;
mod rivals;
mod start_and_stop;
mod storage_client;
mod under_a_lock;
mod waiting;
mod wire;
mod world;
