//! Locks in ZooKeeper, 3.6 or newer. The section "ZooKeeper" of the README says how to use them, and what they
//! guarantee.
//!
//! **Where the token comes from.** Each change of ZooKeeper's data gets a number that grows, its zxid.
//! The token is the czxid of the owner's node, the number of the change that created it, plus an offset
//! that the lock's name has. The offset is 0 until a reissue raises it. A czxid begins with the number
//! of the election, in its upper half, and fits into our tokens for 232 000 elections.
//!
//! **Why it grows.** The oldest node of a name is the owner's. So a later owner's node has a higher
//! czxid. Nothing lowers the offset, and only an owner raises it, while its node exists. A client reads
//! the offset behind the list that shows its own node as the oldest, over the same connection.
//!
//! **What breaks that.** A ZooKeeper that was restored from an older snapshot, or lost its data, counts
//! from a lower number. Then a token may be issued twice. The storage distinguishes the two holders, and
//! rejects the later one. If that holder holds the lock, it continues with a higher token
//! ([`Lease::reissue`](crate::Lease::reissue)). Restarts, elections, and members that fail break nothing.
//!
//! # Nodes
//! `/fenced/queues/NAME` is a container, which ZooKeeper deletes when it is empty. Below it are the
//! ephemeral nodes of the owner and of the waiters, `holder-HOLDER+NUMBER`. Each path is used once, so a
//! late request meets no later node. `/fenced/offsets/NAME` persists, and exists only for names that
//! were reissued. Names and holders are percent-encoded. The URL may name another root, which must exist.
//! If it has a user, only this user reads and writes the nodes' data. The holder's id, which is a part
//! of the path, protects the lock against other clients.
//!
//! # Sessions
//! The locks of a client that have the same ttl share a session, whose time-out is the ttl, and one
//! connection. A lock whose lease ends is deleted because its session lives on, again and again until that
//! is answered. Without an answer for a ttl, the session is given up: its connection is closed, and its other
//! locks move to the next session when they are renewed. A session without a proof for its ttl is given up if
//! it can't be connected: all its leases have ended. ZooKeeper ends an expired session within one more tick.
//!
//! A renewal proves that the leader knows of the session, and that the lock's node is still there. The
//! answer of a follower does not prove it: a follower reports its sessions only when the leader pings
//! it. So a renewal connects anew, which sets the session's full time at the leader, and then writes. The
//! write goes through a quorum. The deadline counts from before that. Renewals at the same time share
//! one proof. A server without followers needs no new connection: each write is a proof.
//!
//! A lock that another process may take over ([`Terms::detachable`](crate::Terms::detachable)) has a
//! session of its own. The process that adopts it moves it to its own session, in one transaction, with
//! another node that keeps the grant, and so the order. A renewal for longer does the same.
//!
//! A lost connection is no lost session: the client connects anew, to any member, and goes on.
//!
//! # Errors
//! [`Unavailable`](crate::backend::BackendError::Unavailable): a reply was lost, a member was silent, or
//! there is no quorum. The request may have been carried out.
//! [`Rejected`](crate::backend::BackendError::Rejected): the nodes are another user's, or the root does
//! not exist. [`Invalid`](crate::backend::BackendError::Invalid): no session lasts as long as the ttl.
//!
//! # Cancellation safety
//! An attempt that is dropped may leave a node. The client remembers it before it is made, and deletes it:
//! at a release, or at the end of the ttl. The deletion is sent behind the attempt over the same
//! connection, or over a later one of the session, after which the attempt is rejected.

mod attempt;
mod client;
mod connection;
mod ensemble;
mod failure;
mod health;
mod login;
mod names;
mod open_sessions;
mod own_nodes;
mod paths;
mod release;
mod renewal;
mod report;
mod server;
mod session;
mod view;
mod wakeups;

pub use self::{
    client::ZooKeeper,
    health::{Connections, MemberHealth, MemberReport},
    login::Login,
};
