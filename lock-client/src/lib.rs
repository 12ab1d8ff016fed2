//! Locks that hand out fencing tokens.
//!
//! # The code
//! Start with [`Locks`], which acquires, and [`Lease`], which is what you get. [`backend`] says what
//! a lock service has to do; [`redis`] and [`redlock`] are two, and explain where their tokens come
//! from.

mod acquisition;
pub mod backend;
mod background;
mod clock;
pub mod lease;
mod local_queue;
pub mod locks;
pub mod observe;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redlock")]
pub mod redlock;
mod retry;
#[cfg(feature = "storage")]
pub mod storage;
pub mod terms;
pub mod ttl;

pub use backend::Backend;
pub use clock::Moment;
pub use lease::{Detached, Lease, Lost, Released, RenewError};
pub use locks::{AcquireError, Locks, WithError};
pub use terms::{Order, Terms};
pub use ttl::{InvalidTtl, Ttl};
