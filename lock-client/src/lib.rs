//! Locks that hand out fencing tokens.
//!
//! # The code
//! Start with [`Locks`], which acquires locks, and [`Lease`], a lock that is held. An acquire is in
//! `acquisition.rs`; when a lease renews itself, in `lease/renewal.rs`; re-entry, in `reentry.rs`.
//! [`backend`] says what a lock service has to do. [`redis`] and `redlock` are two, and explain where
//! their tokens come from. `storage` is the client of the storage server, which checks tokens.
#![cfg_attr(
    all(feature = "redis", feature = "storage", feature = "redlock"),
    doc = "\n# The guide\n",
    doc = include_str!("../README.md")
)]

// What a lock is asked for, and what is returned.
mod error;
mod terms;
mod ttl;

// The core: acquiring, holding, renewing.
mod acquisition;
mod lease;
mod locks;
mod reentry;

// What the core needs.
mod background;
mod clock;
mod local_queue;
mod retry;
mod service;

pub mod backend;
pub mod observe;

#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
#[cfg(feature = "storage")]
pub mod storage;

pub use clock::Moment;
pub use error::{AcquireError, LockServiceError, Lost, RenewError, WithError};
pub use lease::{Lease, Released, detached::Detached};
pub use locks::Locks;
pub use terms::{Order, Terms};
pub use ttl::{InvalidTtl, Ttl};
