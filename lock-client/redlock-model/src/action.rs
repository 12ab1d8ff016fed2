//! The steps.

use crate::{
    id::{Holder, NodeId, NodeSet},
    network::Message,
};

/// One step of a client, a node, the network or the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client concludes that it holds the lock: its acquire returns the token.
    Acquire(Holder),
    /// A client gives up its round, or releases its lease.
    End(Holder),
    /// A client adopts the lease of the first client, and renews it beside that one.
    Adopt(Holder),
    /// A client starts a renewal.
    StartRenewal(Holder),
    /// A client starts a reissue.
    StartReissue(Holder),
    /// A client starts a reissue that only makes joined nodes count: it has learned this node's floor.
    StartRegain(Holder, NodeId),
    /// A renewal or a reissue returns its token.
    Complete(Holder),
    /// A renewal or a reissue gets no more answers, except from nodes that reject it now.
    TimeOut(Holder),
    /// A client stops waiting for a renewal or a reissue.
    Stop(Holder),
    /// A client acquires the lock on these nodes, in one step.
    AcquireAtomically(Holder, NodeSet),
    /// A client reissues its token on these nodes, in one step.
    ReissueAtomically(Holder, NodeSet),
    /// The network delivers a message between a client and a node.
    Deliver(Holder, NodeId, Message),
    /// A client's fenced read reaches the storage.
    Claim(Holder),
    /// A client's write reaches the storage.
    Write(Holder),
    /// A node's lock expires.
    Expire(NodeId),
    /// The failed try of another client raises the counter of a free node.
    FailedTry(NodeId),
    /// A node loses its lock and its counter, and votes on.
    Lose(NodeId),
}
