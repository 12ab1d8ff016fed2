//! Locks in ZooKeeper, 3.6 or newer.
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
//! is answered. Without an answer for a ttl, the session is given up: its connection is closed, and its
//! other locks move to the next session when they are renewed. A session without a proof for its ttl is
//! given up if it can't be connected: all its leases have ended. A process that is paused or dead keeps no
//! session alive. A session takes paths of half a mebibyte: its end lists them in one message, and one
//! above `jute.maxbuffer` would stop the ensemble (ZOOKEEPER-4306).
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
//! # Connections
//! A client has one connection for each session with locks, and one more that reads and watches for all
//! its waiters. In an ensemble, a renewal makes another before it leaves the old one, and waits 100 ms at
//! most for requests on that. It leaves the old one first only if no member takes another
//! (`maxClientCnxns`, 60 for each address by default): a member closes the new connection. Another client
//! that connects at that moment may take its place.
//!
//! A lost connection is no lost session: the client connects anew, to any member, and goes on.
//!
//! # Time to live
//! ZooKeeper's sessions last from 2 to 20 ticks, so from 4 to 40 seconds by default (`minSessionTimeout`
//! and `maxSessionTimeout` change that). Other ttls are
//! [invalid](crate::backend::BackendError::Invalid). All members need the same limits, because a member
//! with a lower one shortens a session that goes on there. So a client that changes to a member first
//! opens a session of that time there, and closes it. If none has the time, the renewal is invalid. If a
//! session was shortened nevertheless, its leases are lost as soon as the client knows.
//!
//! ZooKeeper does not show how long a session has been silent. So the remaining time of a lock is shown
//! as the whole time-out. ZooKeeper ends an expired session within one more tick.
//!
//! # Waiting
//! A fair waiter watches the node before its own, and loses its place if it does not try for 15 seconds.
//! One whose process has died keeps it until its session ends, so for its ttl. A waiter in no order
//! watches the whole queue, and looks before it makes a node. Both kinds are in one queue, and exclude
//! each other. A fair waiter reads the whole queue only when it enters it, and when the node before its
//! own is gone.
//!
//! # Members that fail
//! If a member does not answer, or has no leader, the client continues at the next one. A member may be
//! behind the leader. So each look begins with a `sync`, and each attempt and renewal with a write. A
//! leader that was just replaced answers a `sync`, but no write: a free lock may look held for a moment,
//! never the other way. Such a leader, or a member of another ensemble, also reports the end of sessions
//! that go on. So only the end of its node, read behind a write, proves the end of a session.
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
