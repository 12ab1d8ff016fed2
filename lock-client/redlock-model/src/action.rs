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
    /// A lease learns that a restarted node is admitted, and sends it requests again.
    Reconnect(Holder, NodeId),
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
    /// A node saves a copy of its lock and its counter.
    Save(NodeId),
    /// A node restarts, and loses its lock and its counter, or comes back with its saved copy.
    Restart(NodeId),
    /// A restarted node copies another node's counter.
    CopyCounter {
        /// The restarted node.
        to: NodeId,
        /// The node whose counter it copies.
        from: NodeId,
    },
    /// A restarted node is admitted: it may vote again.
    Admit(NodeId),
}
