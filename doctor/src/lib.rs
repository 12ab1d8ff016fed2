//! One set of probes for each system that keeps locks, tokens or fences.
//!
//! `lock-client doctor`, `storage-server doctor` and `lab doctor store` choose probes and print one
//! [`Report`]. A module probes one system, and returns [`Check`]s. To add a check, add it to the list of
//! its module, and a row to the table in the README: all commands that examine the system then have it.
//! A check that needs a lock, or the storage server's own rule, is made by the command that has it.
//!
//! **A probe changes nothing that others rely on.** It reads settings, sends messages to itself, or works
//! in a folder of its own.

mod check;
#[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis"))]
mod clock;
#[cfg(any(feature = "mariadb", feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod connections;
#[cfg(all(feature = "sqlite", target_os = "linux"))]
mod disk;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod members;
mod report;
#[cfg(any(feature = "etcd", feature = "mariadb", feature = "redis", feature = "zookeeper"))]
mod version;

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "mariadb")]
pub mod mariadb;
#[cfg(feature = "object-storage")]
pub mod object_storage;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "mariadb", feature = "postgres", feature = "sqlite"))]
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use check::{Check, Cure, Verdict};
pub use report::{NOT_EXAMINED, Report};
