//! Private servers, processes that are paused and killed, and networks that delay and lose.
//!
//! Start with [`Redis`], the server that most tests need. Each server is private to one test: it has
//! a temporary folder, a socket or a free port, and ends when its value is dropped. [`process`] starts,
//! pauses and kills; [`wait`](mod@wait) waits for conditions.

mod mariadb;
pub mod postgres;
pub mod process;
mod program;
pub mod proxy;
pub mod redis;
mod shared_postgres;
mod storage_server;
pub mod wait;

pub use self::{
    mariadb::MariaDb,
    postgres::Postgres,
    program::{Program, installed},
    proxy::Proxy,
    redis::{NodeKind, Redis, RedisCluster, RedlockNodes, Replica, Sentinels},
    shared_postgres::Shared,
    storage_server::StorageServer,
};
