//! The outcome of one round.

use fence::Token;
use tokio::sync::oneshot;

use super::node_error::NodeError;
use crate::backend::Contention;

/// The outcome of one round.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A majority has sealed a token.
    Sealed(SealedToken),
    /// Another client holds the lock on a majority, until then.
    Held(Contention),
    /// No other client is known to hold a majority. Until then, there may be no majority of free
    /// nodes.
    Split(Contention),
    /// Too few nodes have answered. These are the others, with their errors.
    TooFewAnswers(Vec<(usize, NodeError)>),
}

/// A token that a majority has sealed. The round releases the lock again unless the token is
/// accepted in time.
#[derive(Debug)]
pub(super) struct SealedToken {
    token: Token,
    accepted: oneshot::Sender<()>,
}

impl SealedToken {
    pub(super) fn new(token: Token, accepted: oneshot::Sender<()>) -> Self {
        Self { token, accepted }
    }

    /// Accepts the token; `None` if the round has given up waiting, and releases the lock.
    pub(super) fn accept(self) -> Option<Token> {
        self.accepted.send(()).is_ok().then_some(self.token)
    }
}
