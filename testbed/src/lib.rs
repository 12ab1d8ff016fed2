//! Private servers, processes that are paused and killed, and a proxy that loses, delays and
//! repeats.
//!
//! Everything here belongs to one test: a server has a temporary folder and a socket or a free port
//! of its own, and ends when its value is dropped. What needs a program that is not installed fails
//! with an error that names the package.
//!
//! Start here:
//! - [`Redis`] is the server that most tests need. [`Replica`], [`Sentinels`], [`RedisCluster`] and
//!   [`RedlockNodes`] are made of several.
//! - [`Patroni`] is a cluster of PostgreSQL that fails over by itself.
//! - [`Etcd`], [`ZooKeeper`], [`Postgres`], [`MariaDb`], [`ObjectStorage`], [`Azurite`] and [`StorageServer`] are the
//!   other servers. [`Databases`] shares one PostgreSQL. [`PgBouncer`] stands before one.
//! - [`Proxy`] stands before any of them, and does to messages what its rules say.
//! - [`process::Process`] is started, read, paused, resumed and killed; all servers are made of it.
//! - [`Authority`] signs certificates for servers and clients.
//! - [`Clock`] is the wall clock of one process, and jumps. [`Disk`] loses what was not synced.
//! - [`wait::until`](wait::until()) waits for a condition.

mod clock;
mod databases;
mod disk;
mod etcd;
mod folder;
mod http;
mod mariadb;
mod object_storage;
pub mod open_files;
mod package;
pub mod patroni;
mod pgbouncer;
mod ports;
pub mod postgres;
mod preload;
pub mod process;
mod program;
pub mod proxy;
pub mod redis;
mod storage_server;
mod template;
mod tls;
mod user;
pub mod wait;
mod zookeeper;

pub use self::{
    clock::Clock,
    databases::Databases,
    disk::{Disk, Unsynced},
    etcd::Etcd,
    mariadb::{MariaDb, MariaDbReplica},
    object_storage::{ObjectStorage, azurite::Azurite},
    package::installed,
    patroni::Patroni,
    pgbouncer::PgBouncer,
    postgres::{Postgres, PostgresReplica},
    program::Program,
    proxy::Proxy,
    redis::{NodeKind, Redis, RedisCluster, RedlockNodes, Replica, Sentinels},
    storage_server::StorageServer,
    tls::{Authority, Certificate},
    zookeeper::ZooKeeper,
};
