//! Owners of tokens, for tests that need no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use fence::{Fence, Holder};

use crate::names::token;

/// A new owner of this token.
pub(crate) fn new_fence(number: u64) -> Fence {
    Fence { token: token(number), holder: Holder::random() }
}

/// A lock's counter, for tests that need tokens and no lock.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn next(&self) -> Fence {
        new_fence(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
