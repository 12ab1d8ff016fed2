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
//! If the URL has a user, only this user reads and writes the nodes' data. Without one, everybody who
//! can connect does. Against malice, the holder's id protects the lock, and not the access list: it is a
//! part of the node's path.
//!
//! # Sessions
//! The locks of a client that have the same ttl share a session, whose time-out is the ttl, and one
//! connection. The client underneath (`zookeeper-client`) pings for it. So a lock whose lease ends is
//! deleted: by its release, when the lease is dropped, or at its deadline, also without a renewal. The
//! client repeats the deletion until that is answered. Without an answer for a ttl, it gives the session
//! up, which then ends with all its locks. A process that is paused or dead pings for nobody.
//!
//! A session takes paths of half a mebibyte: its end lists them in one message, and a message above
//! `jute.maxbuffer` would stop the ensemble (ZOOKEEPER-4306). Then another session begins.
//!
//! A renewal proves that the leader knows of the session, and then that the lock's node is still there. An
//! answer of a follower does not prove it: a follower reports its sessions only when the leader pings it.
//! So a renewal connects anew, which sets the session's full time at the leader, and then writes. The write
//! changes nothing. It needs a quorum, and so shows that this leader was still the leader. The deadline
//! counts from before that. Renewals at the same time share one proof. If a server is alone, each write on
//! the old connection is a proof.
//!
//! A lock that another process may take over ([`Terms::detachable`](crate::Terms::detachable)) has a
//! session of its own. A process that adopts a lock moves it to its own session, in one transaction, with
//! another node that keeps the grant, and so the order. So a [`Detached`](crate::Detached) lock is adopted
//! with its holder and grant alone.
//!
//! # Connections
//! A client has one connection for each session with locks, and one more that reads and watches for all of
//! its waiters. A renewal needs no further one if the server is alone. In an ensemble, it makes another
//! before it leaves the old one, and leaves the old one first only if no member takes another
//! (`maxClientCnxns`, 60 for each address by default).
//!
//! The client underneath would connect anew by itself when its connection is cut. Here its task ends then:
//! a connection is only made after a check that the member has sessions of this time.
//!
//! # Time to live
//! ZooKeeper's sessions last from 2 to 20 ticks, so from 4 to 40 seconds by default (`minSessionTimeout`
//! and `maxSessionTimeout` change that). Other ttls are
//! [invalid](crate::backend::BackendError::Invalid), and the error has the limit. All members need the
//! same limits: a member with a lower one shortens a session that goes on there. So a client first opens
//! and closes a session of that time at each member that it has not asked yet, or whose connection was
//! cut. A renewal goes on at a member that has the time. If there is none, it is invalid, and the lease
//! ends at its deadline. If a session was shortened nevertheless, its leases are lost as soon as the client
//! knows.
//!
//! The time-out of a session never changes. A renewal for longer moves the lock to another session. A
//! renewal for less, at the end of [`max_hold`](crate::Terms::max_hold), leaves it where it is, and the
//! client deletes it at its deadline. ZooKeeper ends an expired session within one more tick.
//!
//! ZooKeeper does not show how long a session has been silent. Where the remaining time of a lock is
//! shown, it is the whole time-out: the lock is free within it, unless it is renewed.
//!
//! # Waiting
//! Waiters in no order and those in the fair queue exclude each other, because their nodes are in one
//! queue. A fair waiter watches the node before its own, so that a release or an expiry notifies one of
//! them. A waiter in no order watches the whole queue. Its first try makes its node, and deletes it again
//! if the lock is held. The later ones look first.
//!
//! A fair waiter reads the whole queue when it enters it, and whenever the node before its own is gone.
//! Until then, a try checks its own node, and reads the node before it. It reports as many waiters
//! ahead as there were in the whole queue. If the node that is gone was the owner's, it tries at once:
//! the attempt sees whether the owner has only moved.
//!
//! A fair waiter that does not try for 15 seconds loses its place. One whose process has died keeps it until
//! its session ends, so for its ttl.
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
//! An attempt that is dropped may leave a node. The client remembers it before it is made, and deletes it:
//! at a release, or at the end of the ttl. The deletion is sent behind the attempt over the same
//! connection, or over a later one of the session, after which the attempt is rejected.
//!
//! # Lost connections
//! A lost connection is no lost session: the client connects anew, to any member, and goes on with
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
