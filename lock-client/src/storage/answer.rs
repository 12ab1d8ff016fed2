//! What the storage answers.

use bytes::Bytes;
use fence::{Rejection, Token};

/// The storage's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer<T> {
    /// The token was accepted, durably.
    Accepted(T),
    /// The token was rejected, and nothing was changed.
    Rejected(Rejection),
}

/// A value, as the storage keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value itself.
    pub bytes: Bytes,
    /// The content type that it was written with.
    pub content_type: String,
    /// The number of the resource's writes and deletes up to this one.
    pub version: u64,
    /// The token that it was written with, if any.
    pub token: Option<Token>,
}
