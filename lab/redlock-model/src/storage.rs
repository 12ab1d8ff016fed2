//! The fenced storage: one resource, and the rule.
//!
//! The rule is `fence::decide`, in tokens and holders of one byte.

use std::cmp::Ordering;

use crate::{
    id::{Holder, Token},
    variant::Binding,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Storage {
    pub(crate) fence: Option<Fence>,
    /// Who wrote last, with which token: nobody writes twice with the same one.
    pub(crate) value: Option<Fence>,
}

/// A token and the holder it belongs to: the fence itself, or what is offered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fence {
    pub(crate) token: Token,
    pub(crate) holder: Holder,
}

impl Storage {
    /// Accepts or refuses an offer.
    pub(crate) fn accepts(&mut self, offered: Fence, binding: Binding) -> bool {
        let accepted = self.fence.is_none_or(|fence| match offered.token.cmp(&fence.token) {
            Ordering::Greater => true,
            Ordering::Equal => binding == Binding::None || offered.holder == fence.holder,
            Ordering::Less => false,
        });
        if accepted {
            self.fence = Some(offered);
        }
        accepted
    }

    pub(crate) fn highest_token(&self) -> Token {
        self.fence.map_or(0, |fence| fence.token)
    }
}
