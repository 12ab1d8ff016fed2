//! Locks in ZooKeeper, 3.6 or newer.
//!
//! **Where the token comes from.** Each change of ZooKeeper's data gets a number that grows, its zxid.
//! An owner has a node. The number of the change that created it, its czxid, plus an offset that the
//! lock's name has, is the token. The offset is 0 until a reissue raises it. A czxid begins with the
//! number of the election, in its upper half. It fits into our tokens for 232 000 elections.
//!
//! **Why it grows.** The owner is the holder whose node is the oldest of its name. So a later owner's
//! node has a higher czxid, and nothing ever lowers the offset. Only an owner raises it, as long as its
//! node exists. A client reads the offset behind the list that shows its own node as the oldest, over the
//! same connection, and never remembers it.
//!
//! **What breaks that.** A ZooKeeper that was restored from an older snapshot, or lost its data: its
//! changes count again from a lower number. Then a token may be issued twice. The storage distinguishes
//! the two holders, and rejects the later one. If that holder holds the lock, it continues with a
//! higher token ([`Lease::reissue`](crate::Lease::reissue)), and the offset lifts all later ones.
//! Restarts, elections, and members that fail break nothing.
//!
//! # Nodes
//! `/fenced/queues/NAME` is a container, which ZooKeeper deletes when it is empty. Below it are the
//! ephemeral nodes of the owner and of the waiters, `holder-HOLDER`. `/fenced/offsets/NAME` persists,
//! and exists only for names that were reissued. Names and holders are percent-encoded. The URL may name
//! another root, which must exist.
//!
//! The recipe of ZooKeeper's documentation numbers the nodes. These numbers wrap, and restart with the
//! container. So the order here is that of the czxids, and the nodes have no numbers. A repeated attempt
//! finds the node of its holder, so that a lost reply leaves no second node that blocks all others.
//!
//! A look lists the queue, then reads all its nodes, and the offset last. One message reads 256 nodes
//! (`multiRead`), in their order. Nothing here needs them to be of one moment. If a node is gone that was
//! listed, its holder may have moved to another one, and the look begins anew. The first message reads
//! the client's own node and the offset, too. So it is the only one if nobody else is in the queue.
//!
//! If the URL has a user, only this user reads and writes the nodes' data, which includes the password of
//! the session. Without one, everybody who can connect does. Against malice, the holder's id protects the
//! lock, and not the access list. It is a part of the node's path. A client that knows the path gets the
//! session's id from `exists`, which needs no permission, and can compute the password from this id. With
//! both, it can renew the lock, or release it.
//!
//! # Sessions
//! Each holder has a session, whose time-out is the ttl. A client connects it only while a request is
//! under way. A new connection is what gives a session its full time: a member asks the leader for it,
//! while it answers pings by itself. So an attempt and a renewal make a connection, and then a
//! transaction that changes nothing. It needs a quorum, and so shows that this leader was still the
//! leader. Nothing pings for a holder that is paused, or that does not renew its lease.
//!
//! Locks that are held cost ZooKeeper a session each, and no connection. An acquire writes two times:
//! the session and the node. It writes two more times if the lock's container was deleted. A release
//! writes once: the end of the session deletes the node. Each client
//! has one more session and connection, to read locks and to watch them for all of its waiters. A try in
//! no order looks first, so that it writes nothing while the lock is held. A client makes 16
//! attempts at once, and 8 renewals and 8 releases beside them: a member allows 60 connections to each
//! address by default (`maxClientCnxns`).
//!
//! The owner's node has what another process needs to go on with the session. So a
//! [`Detached`](crate::Detached) lock is adopted with its holder and grant alone.
//!
//! # Time to live
//! ZooKeeper's sessions last from 2 to 20 ticks, so from 4 to 40 seconds by default (`minSessionTimeout`
//! and `maxSessionTimeout` change that). Other ttls are
//! [invalid](crate::backend::BackendError::Invalid), and the error has the limit. All members need the
//! same limits: a member with a lower one shortens a session that goes on there. So a client first opens
//! and closes a session of that time at each member that it has not asked yet, or whose connection has
//! ended. A renewal goes on at a member that has the time. If there is none, it is invalid, and the lease
//! ends at its deadline. A member that was started anew with a lower limit, and that the client did not
//! read at, still shortens the session. Then the lease is lost, as soon as the client knows.
//!
//! The time-out of a session never changes. A renewal for longer moves the lock to another session, in
//! one transaction, with another node that keeps the grant. A renewal for less, at the end of
//! [`max_hold`](crate::Terms::max_hold), leaves the session as it is: then the lock is free at the end of
//! the longer time. ZooKeeper ends an expired session within one more tick.
//!
//! ZooKeeper does not show how long a session has been silent. Where the remaining time of a lock is
//! shown, it is the whole time-out: the lock is free within it, unless it is renewed.
//!
//! # Waiting
//! Waiters in no order and those in the fair queue exclude each other, because their nodes are in one
//! queue. A fair waiter watches the node before its own, so that a release or an expiry notifies one of
//! them. A waiter in no order watches the whole queue.
//!
//! A fair waiter reads the whole queue when it enters it, and whenever the node before its own is gone.
//! Until then, a try connects its session, and reads the node before its own. It reports as many waiters
//! ahead as there were in the whole queue. If the node that is gone was the owner's, it tries at once:
//! the attempt sees whether the owner has only moved.
//!
//! A fair waiter that crashed is skipped after 15 seconds, or when its ttl ends: its session lasts no
//! longer. The owner moves to a session of its whole ttl. If the queue is empty, an attempt makes that one
//! at once.
//!
//! # Members that fail
//! A client connects to the first member that its URL names. If this member does not answer, or has no
//! leader, the client continues at the next one. A member may be behind the leader. So each look at a
//! lock begins with a `sync`, and each attempt and renewal with a write: what is read behind them, over
//! the same connection, is at least as new. A leader that was just replaced, and does not know it yet,
//! answers a `sync`, but no write. So for a moment, a lock may look held that is free. A holder that seems
//! to have no lock is looked for again behind a write. No lock is granted, and no lease renewed, that is
//! another's.
//!
//! That leader also reports the end of sessions that its successor keeps. So does a member of another
//! ensemble, which a wrong URL may name. A client that gets this answer asks the other members, and then
//! reads the lock behind a write. Only the end of its node proves the end of a session. If all members
//! that answer belong to another ensemble, or have lost their data, no client finds the lock there, and
//! the lease is lost. Nothing distinguishes the two. In the first case, the lock stays in its own ensemble
//! until its ttl ends.
//!
//! # Errors
//! [`Unavailable`](crate::backend::BackendError::Unavailable): a reply was lost, a member was silent, or
//! there is no quorum. The request may have been carried out.
//! [`Rejected`](crate::backend::BackendError::Rejected): the nodes are another user's, or the root does
//! not exist. [`Invalid`](crate::backend::BackendError::Invalid): no session lasts as long as the ttl.
//!
//! # Cancellation safety
//! An attempt that is dropped may leave a session and a node. The same client remembers the session
//! before it makes the node. A release ends the session, so that a request of the attempt that arrives
//! later fails. If the client does not release, both end with the ttl.
//!
//! # Lost connections
//! A lost connection is no lost session: the next request connects anew, to any member, and goes on with
//! the session. A lease ends only when ZooKeeper reports that the session has expired or that its node is
//! gone, and at its own deadline in any case. After the deadline, the lease is lost even if ZooKeeper
//! still keeps the session.

mod attempt;
mod certificates;
mod client;
mod connection;
mod door;
mod ensemble;
mod failure;
mod health;
mod login;
mod names;
mod nodes;
mod own_nodes;
mod ownership;
mod server;
mod session;
mod view;
mod wakeups;

pub use self::{
    client::ZooKeeper,
    health::{MemberHealth, MemberReport},
    login::Login,
    server::InvalidZooKeeperUrl,
};
