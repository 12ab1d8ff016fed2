//! The steps.

use crate::{
    id::{Holder, NodeId, Nodes},
    network::Message,
};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client concludes that it has the lock, and is told the token.
    Acquire(Holder),
    /// A client gives up, or releases.
    End(Holder),
    /// A client concludes a renewal, and is told a token that it didn't know.
    Renew(Holder),
    /// A client doesn't wait for a renewal any longer.
    GiveUpRenewal(Holder),
    /// A client begins a reissue.
    BeginReissue(Holder),
    /// A client concludes a reissue, and is told the new token.
    Reissue(Holder),
    /// A client doesn't wait for a reissue any longer.
    GiveUpReissue(Holder),
    /// A client acquires on some nodes, in one step.
    AcquireAtOnce(Holder, Nodes),
    /// A client reissues its token on some nodes, in one step.
    ReissueAtOnce(Holder, Nodes),
    /// A message between a client and a node is delivered.
    Deliver(Holder, NodeId, Message),
    /// A fenced read reaches the storage.
    Claim(Holder),
    /// A write reaches the storage.
    Write(Holder),
    /// A lock ends by itself.
    Expire(NodeId),
    /// A node loses its memory.
    Restart(NodeId),
    /// A node that restarted copies the counter of another.
    Copy {
        /// The node that restarted.
        to: NodeId,
        /// The other.
        from: NodeId,
    },
    /// A node that restarted gets its vote back.
    Admit(NodeId),
}
