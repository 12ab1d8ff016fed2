//! A ttl that a cluster never grants.

use crate::Ttl;

/// The ttl is longer than any that the cluster grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ttl of {ttl} is longer than the cluster's longest, {longest}")]
pub struct LongTtl {
    pub(super) ttl: Ttl,
    pub(super) longest: Ttl,
}

impl LongTtl {
    /// The longest ttl that the cluster grants.
    pub fn longest(&self) -> Ttl {
        self.longest
    }
}
