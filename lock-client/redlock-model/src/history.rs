//! The tokens issued so far, and which safety property has been violated.
//!
//! A token is issued when a client's acquire, renewal or reissue returns it.

use crate::{
    id::Token,
    properties::{NO_LEASE_OUTLIVES, NO_WRITE_IS_LOST, TOKENS_ARE_UNIQUE, TOKENS_GROW},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct History {
    /// The issued tokens, one bit each.
    issued: u32,
    /// Whether a token was issued twice.
    pub(crate) token_repeated: bool,
    /// Whether a token was not above every token issued before its operation started.
    pub(crate) token_fell: bool,
    /// Whether a renewal or a reissue succeeded that began after another client was given a higher
    /// token than the lease's.
    pub(crate) lease_outlived: bool,
    /// Whether a client overwrote an accepted write that it had not read.
    pub(crate) write_lost: bool,
}

impl History {
    /// Records that a client's operation returns a token. `issued_before` was the highest issued
    /// token when that operation started.
    pub(crate) fn issue(&mut self, token: Token, issued_before: Token) {
        self.token_repeated |= self.issued & 1 << token != 0;
        self.token_fell |= token <= issued_before;
        self.issued |= 1 << token;
    }

    /// Records that a renewal or a reissue of a lease succeeds. A token above the lease's that was
    /// issued before it started is another client's.
    pub(crate) fn prolong(&mut self, token: Token, issued_before: Token) {
        self.lease_outlived |= issued_before > token;
    }

    pub(crate) fn highest_issued(&self) -> Token {
        self.issued.checked_ilog2().map_or(0, |bit| bit as Token)
    }

    pub(crate) fn forget_tokens(&mut self) {
        *self = Self { write_lost: self.write_lost, ..Self::default() };
    }

    /// The safety properties that have been violated. The model explores no step after that.
    pub(crate) fn violated(&self) -> Vec<&'static str> {
        let properties = [
            (self.token_repeated, TOKENS_ARE_UNIQUE),
            (self.token_fell, TOKENS_GROW),
            (self.lease_outlived, NO_LEASE_OUTLIVES),
            (self.write_lost, NO_WRITE_IS_LOST),
        ];
        let violated = properties.into_iter().filter(|(is_violated, _)| *is_violated);
        violated.map(|(_, name)| name).collect()
    }
}
