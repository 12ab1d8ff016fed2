//! The fence inside databases.

mod conformance;
mod fence_in_mariadb;
mod fence_in_postgres;
mod fence_in_redis;
mod fence_in_sqlite;
mod hammer;
