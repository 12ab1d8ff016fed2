//! Locks in etcd, 3.4 or newer.
//!
//! **Where the token comes from.** Each change of etcd's data gets a revision, a number that grows.
//! An owner has a key. Its create revision, plus an offset that the lock's name has, is the token.
//! The offset is 0 until a reissue raises it.
//!
//! **Why it grows.** The owner is the holder whose key is the oldest of its name. So a later owner's
//! key has a higher create revision, and nothing ever lowers the offset. A waiter reads the offset
//! only once its own key is the oldest, in the transaction that shows this.
//!
//! **What breaks that.** A cluster that was restored from a snapshot: its revisions count again from
//! those of the snapshot. Then a token may be issued twice. The storage distinguishes the two
//! holders, and rejects the later one. If that holder holds the lock, it continues with a higher
//! token ([`Lease::reissue`](crate::Lease::reissue)). Restarts, elections, and members that fail
//! break no token.
//!
//! # Versions
//! Before 3.4.31 and 3.5.13, a leader that was paused or cut off, and was replaced meanwhile, may
//! revoke leases that its successor has renewed. Then a lock is free although its owner renews it, and
//! a second client acquires it. The second one's token is higher, so the storage still rejects the
//! first one. Upgrade etcd where the lock must exclude.
//!
//! # Keys
//! `fenced/NAME/queue/HOLDER` and `fenced/NAME/offset`, and for a while `fenced//closed/LEASE`. In
//! the name, `%` and `/` become `%25` and `%2F`. With authentication, a client needs the permission to
//! read and write the prefix `fenced/`.
//!
//! # Time to live
//! A key lives by a lease of etcd, whose time is in whole seconds. Other ttls are
//! [invalid](crate::backend::BackendError::Invalid). So are those below etcd's shortest time, which is
//! one and a half election time-outs: 2 seconds by default. The error names it. A renewal for less
//! than the lease's time, at the end of [`max_hold`](crate::Terms::max_hold), leaves the lease as it
//! is: then the lock is free at the end of the longer time. An expired lease is removed within another
//! half second.
//!
//! The locks that a client acquires at about one time, for the same ttl, share a lease. It lasts longer
//! than the ttl by an eighth, from 2 to 4 seconds. So the lock of a client that crashed before its first
//! renewal may last so much longer, and [`status`](crate::backend::Backend::status) shows that time.
//! The first renewal moves the lock to a lease of its own. A shared lease is never kept alive or
//! revoked. An empty one ends by itself. So a client that acquires locks all the time leaves one behind
//! every 2 to 4 seconds, for a ttl: about 12 for a ttl of 30 seconds, and 950 for an hour.
//!
//! # Space
//! An etcd that has reached its quota (alarm `NOSPACE`) stores nothing more, and attempts fail. The
//! first renewal of a lock fails too, because it moves the lock. Later ones only keep a lease alive, and
//! succeed. A release deletes the lock. An attempt without an answer that has acquired the lock is found
//! by the next one. The lease's deadline then counts from what is left of its time. If the request may
//! still arrive, a release is [`Unavailable`](crate::backend::BackendError::Unavailable), because the
//! client can't close the shared lease.
//!
//! # Waiting
//! Waiters in no order and those in the fair queue exclude each other, because their keys are in one
//! queue. A fair waiter watches the key before its own, so that a release notifies one of them. If that
//! was the owner's, its next attempt is one transaction, which succeeds only if its key is the oldest. A
//! waiter in no order watches the whole queue. A fair waiter that crashed is skipped after 15 seconds,
//! or when its ttl ends: its key gets a lease of the whole ttl only once it is the owner's. Its lease as
//! a waiter ends by itself then. Each waiter has a connection of its own.
//!
//! # Members that fail
//! A client talks to one member. If this member does not answer, has no leader, or is a learner, the
//! client continues at the next one. A request whose reply was lost is
//! [`Unavailable`](crate::backend::BackendError::Unavailable): it may have been carried out. Without
//! a quorum, so is every request. A keep-alive counts only if no election followed it: a leader that
//! was replaced renews leases that it does not manage any more.
//!
//! After an attempt without an answer, the holder's next request first closes the shared lease: then
//! this attempt fails if it arrives later. A fair attempt fails because the release revokes its lease. Only if late
//! requests of a fair waiter arrive at two members in turn, the lock is held by nobody until its ttl
//! ends.

mod attempt;
mod client;
mod connection;
mod connector;
mod failure;
mod health;
mod keys;
mod leases;
mod messages;
mod names;
mod own;
mod ownership;
mod rounds;
mod server;
mod session;
mod view;
mod wakeups;

pub use self::{
    client::Etcd,
    health::{ClusterReport, LeaseClock, MemberHealth, MemberReport},
    server::InvalidEtcdUrl,
};
