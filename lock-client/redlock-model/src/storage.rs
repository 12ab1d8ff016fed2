//! The fenced storage: one resource, and the rule.
//!
//! The rule is `fence::decide`, with tokens and holders of one byte.

use std::cmp::Ordering;

use crate::{
    fault::Fault,
    id::{Holder, Token},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Storage {
    pub(crate) fence: Option<Fence>,
    /// The resource's value: the token and the holder of the last write identify it.
    pub(crate) value: Option<Fence>,
}

/// A token and its holder: the fence itself, or an offer to the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fence {
    pub(crate) token: Token,
    pub(crate) holder: Holder,
}

impl Storage {
    /// Accepts or rejects an offer. Accepting it moves the fence.
    pub(crate) fn accept(&mut self, offered: Fence, fault: Option<Fault>) -> bool {
        let accepted = self.would_accept(offered, fault);
        if accepted {
            self.fence = Some(offered);
        }
        accepted
    }

    pub(crate) fn would_accept(&self, offered: Fence, fault: Option<Fault>) -> bool {
        self.fence.is_none_or(|fence| match offered.token.cmp(&fence.token) {
            Ordering::Greater => true,
            Ordering::Equal => {
                offered.holder == fence.holder || fault == Some(Fault::FenceComparesToken)
            }
            Ordering::Less => false,
        })
    }

    /// The fence's token; 0 without a fence.
    pub(crate) fn highest_token(&self) -> Token {
        self.fence.map_or(0, |fence| fence.token)
    }
}
