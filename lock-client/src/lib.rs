//! Distributed locks that hand out fencing tokens.
//!
//! A lease ends when its time is up, but its holder may not notice: a client that was paused still
//! believes that it holds the lock. So every lease comes with a token, a number that grows with
//! every grant. The client sends it with each write, and the storage rejects writes with an older
//! token than the highest it has seen.
//!
//! ```no_run
//! use lock_client::{Locks, Ttl};
//! # use lock_client::backend::Backend;
//!
//! # async fn example(service: impl Backend) -> Result<(), Box<dyn std::error::Error>> {
//! // With the feature `redis`, the service is redis::Redis::open("redis://127.0.0.1")?
//! let locks = Locks::new(service);
//! // Waits until the lock is acquired. The lease renews itself until it is released.
//! let lease = locks.acquire(&"invoice-7".parse()?, Ttl::from_secs(10)?).await?;
//! println!("send token {} with each write", lease.token()?);
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! The README of this crate is the guide: the features, waiting, renewal, loss, and what each deployment
//! guarantees.
//!
//! # The code
//! Start with [`Locks`], which acquires locks, and [`Lease`], a lock that is held. Then read
//! `acquisition.rs`, one acquire in five steps; `lease/renewal.rs`, when a lease renews itself; and
//! `reentry.rs`. [`backend`] is what a lock service has to do. The modules `redis`, `redlock`, `etcd`,
//! `zookeeper`, `postgres`, `mariadb` and `sqlite` are lock services, and explain where their tokens
//! come from. `redis/acquire.lua` is the script that grants a lock.

// The services that are compiled decide which parts of the code below them are used. With all of them,
// whatever is not used is reported.
#![cfg_attr(
    not(all(
        feature = "etcd",
        feature = "mariadb",
        feature = "postgres",
        feature = "redlock",
        feature = "sqlite",
        feature = "storage-tls",
        feature = "zookeeper"
    )),
    allow(dead_code, unused_imports, unused_macros, reason = "for services that are not compiled")
)]

// The terms of an acquire, and its errors.
mod error;
mod terms;
mod ttl;

// The core: acquiring, holding, renewing.
mod acquisition;
mod lease;
mod locks;
mod reentry;

// What the core and the lock services share.
mod causes;
mod clock;
mod follow;
mod holders;
mod keeper;
mod kept_for;
mod label;
mod local_queue;
mod mutex;
mod retry;
mod service;
mod service_url;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
mod waiters;

pub mod backend;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod observe;

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "mariadb")]
pub mod mariadb;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
#[cfg(any(feature = "mariadb", feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "storage")]
pub mod storage;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use clock::Moment;
pub use error::{AcquireError, DetachError, LockServiceError, Lost, RenewError, WithError};
pub use lease::{Detached, Lease, Released};
pub use locks::Locks;
pub use service::Unanswered;
pub use service_url::InvalidUrl;
pub use terms::{Order, Terms};
pub use ttl::{InvalidTtl, Ttl};

#[cfg(all(doctest, feature = "postgres", feature = "redlock", feature = "storage"))]
#[doc = include_str!("../README.md")]
struct Readme;
