//! The tokens of a lease.

use super::Token;

/// What a client knows of the tokens of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseTokens {
    /// The highest token that a majority of counting nodes has sealed. A node counts if its floor
    /// is not above it.
    height: Token,
    /// The token that was handed out. A reissue that only makes joined nodes count does not change
    /// it.
    token: Token,
    /// The highest token that such a reissue may have sealed.
    regained: Option<Token>,
}

impl LeaseTokens {
    pub(crate) fn new(token: Token) -> Self {
        Self { height: token, token, regained: None }
    }

    pub(crate) fn height(&self) -> Token {
        self.height
    }

    /// The token to hand out.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Records that a majority of counting nodes has sealed a token.
    pub(super) fn reach(&mut self, sealed: Token) {
        self.height = self.height.max(sealed);
        if self.regained.is_none_or(|regained| self.height > regained) {
            self.token = self.height;
        }
    }

    /// Records that a majority of counting nodes has sealed a token that the caller asked for.
    pub(super) fn hand_out(&mut self, sealed: Token) {
        self.reach(sealed);
        self.token = self.token.max(sealed);
    }

    /// Records that a reissue which only makes joined nodes count is about to seal a token.
    pub(super) fn regain(&mut self, token: Token) {
        self.regained = self.regained.max(Some(token));
    }
}
