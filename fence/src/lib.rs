//! The fencing rule and its vocabulary, and the same rule inside databases.
//!
//! A lock with a time-to-live can't stop a client that paused past its lease. A **fencing token**
//! can: a number that grows with every grant of the lock, and that the storage checks. This crate
//! is that check, as one pure function, [`decide`]; the storage server applies it, and the modules
//! named after databases bring it into your own.
//!
//! Start with [`rule`], then look at what its words can hold: [`Token`], [`Holder`],
//! [`ResourceName`].
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
//! Each of these is behind a feature of its name. They work on the caller's own connection, inside
//! the caller's own transaction: `postgres`, `mariadb`, `sqlite` (all with `sqlx`) and `redis`. What
//! each database guarantees is told in `migrations/README.md`, and `fence/examples` has a program for
//! each. `conformance` is the suite that all of them pass, for whoever adds another.

pub mod holder;
pub mod name;
pub mod refusal;
pub mod rule;
pub mod token;

#[cfg(feature = "mariadb")]
pub mod mariadb;
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
pub use refusal::{ClaimError, Refusal, RefusalReason};
pub use rule::{Decision, Fence, decide};
pub use token::{InvalidToken, Token};
