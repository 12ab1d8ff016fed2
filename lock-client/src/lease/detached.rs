//! A lock that its lease has left held.

use fence::{ResourceName, Token};

use crate::{backend::Ownership, ttl::Ttl};

/// A lock that its lease has left held, for another process to [adopt](crate::Locks::adopt).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The lock's name.
    pub name: ResourceName,
    /// The ownership of the lock: the proof of holding it.
    pub ownership: Ownership,
    /// The highest token that the lease had. With Redlock, it may be higher than the token that was
    /// handed out.
    pub token: Token,
    /// The ttl that each renewal sets.
    pub ttl: Ttl,
}
