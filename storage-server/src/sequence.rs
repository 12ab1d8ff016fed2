//! Writes that may be sent again: their numbers, and the answers that are kept for them.
//!
//! A client whose write was not answered can't know whether it took effect. If it numbers its
//! writes, it can send the same one again, and gets the first answer. The answers are a part of the
//! resource's row, so they are committed together with the write.

mod answers;
mod digest;
mod text;

use std::{fmt, str::FromStr};

use fence::{InvalidToken, Token};

pub(crate) use self::answers::Known;
use self::digest::Digest;
pub use self::{answers::Answers, text::InvalidAnswers};
use crate::operation::Action;

/// The number of a write. It rises with each write to one resource under one token and holder. It
/// has the range and the syntax of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// The sequence as a number.
    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }
}

impl FromStr for Sequence {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        text.parse().map(|number: Token| Self(number.as_u64()))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a write, and a hash of everything else that its client has requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) sequence: Sequence,
    request: Digest,
}

impl Numbered {
    pub(crate) fn new(sequence: Sequence, action: &Action) -> Self {
        Self { sequence, request: Digest::of_request(action) }
    }
}

#[cfg(test)]
mod tests;
