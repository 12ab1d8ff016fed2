//! Fencing tokens, checked by the storage.
//!
//! A lock with a time-to-live can't stop a client that paused past its lease: the client wakes up
//! and overwrites newer data. A **fencing token** can stop it: a number that grows with every grant
//! of the lock, and that the storage checks. This crate is that check: one pure function,
//! [`decide`], whose documentation has the rule as a table, and the same rule inside your own
//! database.
//!
//! ```
//! use fence::{Decision, Fence, Holder, Token, decide};
//!
//! let seen = Fence { token: Token::new(34)?, holder: Holder::random() };
//! let late = Fence { token: Token::new(33)?, holder: Holder::random() };
//! assert_eq!(decide(Some(&seen), &late), Decision::Stale);
//! # Ok::<(), fence::InvalidToken>(())
//! ```
//!
//! # Inside a database
//! Each datastore has a module of its name, behind a feature of its name: `postgres`, `mariadb` and
//! `sqlite` (with `sqlx`), `redis` and `object_store`. The three with SQL work on the caller's own
//! connection, inside the caller's own transaction. `README.md` has the shortest example for each, `examples`
//! has a whole program for each, and `migrations/README.md` in the repository says what each
//! guarantees. The module `conformance`, behind its feature, is the suite that all of them pass.
//!
//! # The code
//! Start with `rule.rs`. [`Token`], [`Holder`] and [`ResourceName`] can't hold a bad value.

mod rule;

mod holder;
mod name;
mod token;

mod rejection;

#[cfg(feature = "mariadb")]
pub mod mariadb;
#[cfg(feature = "object_store")]
pub mod object_store;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use holder::{Holder, InvalidHolder};
pub use name::{InvalidName, ResourceName};
pub use rejection::{ClaimError, Rejection, RejectionReason};
pub use rule::{Decision, Fence, decide};
pub use token::{InvalidToken, Token};

/// Compiles the examples of the README.
#[cfg(all(
    doctest,
    feature = "mariadb",
    feature = "object_store",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
#[doc = include_str!("../README.md")]
struct Readme;
