//! The fence in databases: real servers, each private to one test.

mod conformance;
mod fence_in_mariadb;
mod fence_in_object_store;
mod fence_in_postgres;
mod fence_in_redis;
mod fence_in_sqlite;
mod names;
