//! The fencing rule and its vocabulary.
//!
//! A lock with a time-to-live can't stop a client that paused past its lease. A **fencing token**
//! can: a number that grows with every grant of the lock, and that the storage checks. This crate
//! is that check, as one pure function, [`decide`]; the storage server and every embedding in a
//! database apply the same rule.
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

pub mod holder;
pub mod name;
pub mod rule;
pub mod token;

pub use holder::{Holder, InvalidHolder};
pub use name::{InvalidName, ResourceName};
pub use rule::{Decision, Fence, decide};
pub use token::{InvalidToken, Token};
