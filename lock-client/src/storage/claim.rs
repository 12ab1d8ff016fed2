//! A lease's claim on a resource.

use std::sync::Arc;

use fence::Token;
use tokio::sync::Mutex;

/// The claim that all clones of a lease share, for one resource.
pub(crate) type SharedClaim = Arc<Mutex<Claim>>;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Claim {
    /// No claim was accepted yet, and nothing was read.
    #[default]
    None,
    /// A claim with this token was accepted. Everything else is sent with it too. The lease may
    /// have a higher token by now for another resource: with that one, a write would get past a
    /// client that was let in meanwhile.
    Accepted(Token),
    /// A write with this token was sent, and has no answer. It may still be carried out.
    Unknown(Token),
}
