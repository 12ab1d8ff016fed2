//! What has been told so far, and what was wrong with it.

use crate::id::Token;

/// What has been told so far, and what was wrong with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct History {
    /// A bit for each token.
    told: u32,
    pub(crate) repeated: bool,
    pub(crate) fell: bool,
    pub(crate) write_lost: bool,
}

impl History {
    /// Notes that somebody is told a token, who began when the highest one was `told_before`.
    pub(crate) fn tell(&mut self, token: Token, told_before: Token) {
        self.repeated |= self.told & 1 << token != 0;
        self.fell |= token <= told_before;
        self.told |= 1 << token;
    }

    pub(crate) fn highest_told(&self) -> Token {
        self.told.checked_ilog2().map_or(0, |bit| bit as Token)
    }

    pub(crate) fn forget_tokens(&mut self) {
        *self = Self { write_lost: self.write_lost, ..Self::default() };
    }

    /// Whether something is wrong. Nothing is looked at after that.
    pub(crate) fn is_broken(&self) -> bool {
        self.repeated || self.fell || self.write_lost
    }
}
