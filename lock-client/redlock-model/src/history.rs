//! The tokens issued so far, and which safety property has been violated.
//!
//! A token is issued when a client's acquire, renewal or reissue returns it.

use crate::{
    id::Token,
    properties::{NO_LEASE_OUTLIVES, TOKENS_ARE_UNIQUE, TOKENS_GROW},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct History {
    /// The issued tokens, one bit each.
    issued: u32,
    /// Those that were issued to a lease that two clients share. They are as one: each may return what
    /// the other has reissued.
    shared: u32,
    /// Whether a token was issued twice.
    pub(crate) token_repeated: bool,
    /// Whether a token was not above every token issued before its operation started.
    pub(crate) token_fell: bool,
    /// Whether a renewal or a reissue succeeded that began after another client was given a higher
    /// token than the lease's.
    pub(crate) lease_outlived: bool,
}

impl History {
    /// Records that a client's operation returns a token. `issued_before` was the highest issued
    /// token when that operation started.
    pub(crate) fn issue(&mut self, token: Token, issued_before: Token) {
        self.token_repeated |= self.issued & 1 << token != 0;
        self.token_fell |= token <= issued_before;
        self.issued |= 1 << token;
    }

    /// Records that an operation of a shared lease returns a token.
    pub(crate) fn issue_to_shared(&mut self, token: Token, issued_before: Token) {
        self.issued &= !(self.shared & 1 << token);
        self.issue(token, issued_before);
        self.share(token);
    }

    /// Records that a renewal or a reissue of a lease succeeds. A token above the lease's that was
    /// issued before it started is another client's.
    pub(crate) fn prolong(&mut self, token: Token, issued_before: Token) {
        self.lease_outlived |= issued_before > token;
    }

    pub(crate) fn highest_issued(&self) -> Token {
        self.issued.checked_ilog2().map_or(0, |bit| bit as Token)
    }

    /// The highest token that was not issued to a shared lease.
    pub(crate) fn highest_unshared(&self) -> Token {
        Self { issued: self.issued & !self.shared, ..*self }.highest_issued()
    }

    /// The highest token that was issued to a shared lease.
    pub(crate) fn highest_shared(&self) -> Token {
        Self { issued: self.shared, ..*self }.highest_issued()
    }

    /// Records that two clients share the lease that was given this token.
    pub(crate) fn share(&mut self, token: Token) {
        self.shared |= 1 << token;
    }

    /// The safety properties that have been violated. The model explores no step after that.
    pub(crate) fn violated(&self) -> Vec<&'static str> {
        let properties = [
            (self.token_repeated, TOKENS_ARE_UNIQUE),
            (self.token_fell, TOKENS_GROW),
            (self.lease_outlived, NO_LEASE_OUTLIVES),
        ];
        let violated = properties.into_iter().filter(|(is_violated, _)| *is_violated);
        violated.map(|(_, name)| name).collect()
    }
}
