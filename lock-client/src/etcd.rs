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
//! `fenced/NAME/queue/HOLDER` and `fenced/NAME/offset`, and sometimes `fenced//session/LEASE`. In the
//! name, `%` and `/` become `%25` and `%2F`. With authentication, a client needs the permission to read
//! and write the prefix `fenced/`.
//!
//! # Time to live
//! A key lives by a lease of etcd, whose time is in whole seconds. Other ttls are
//! [invalid](crate::backend::BackendError::Invalid). So are those below etcd's shortest time, which is
//! one and a half election time-outs: 2 seconds by default. The error names it. An expired lease is
//! removed within another half second.
//!
//! # Sessions
//! The locks of a client with one ttl share a session: one lease, which each renewal keeps alive for all
//! of them. A lock that is acquired within half a second of a keep-alive, and a thirtieth of the ttl, counts
//! its deadline from that keep-alive. Renewals at about one time share a keep-alive and their reads: they
//! may wait for a quarter of the answer time-out.
//!
//! A session doesn't end with a lock. So the client deletes a lock that ends: at its release, at its
//! deadline, and at the end of [`max_hold`](crate::Terms::max_hold). It repeats that until etcd answers. If
//! etcd does not answer for a ttl, the client gives the session up, and it ends within a ttl. If a session
//! ends, all its locks are lost. A lock that another process may take over
//! ([`Terms::detachable`](crate::Terms::detachable)) has a session of its own.
//!
//! # Space
//! An etcd that has reached its quota (alarm `NOSPACE`) stores nothing more, and attempts fail. Renewals
//! only keep a lease alive, and succeed. A release deletes the lock. An attempt without an answer that has
//! acquired the lock is found by the next one. If the request may still arrive, a release is
//! [`Unavailable`](crate::backend::BackendError::Unavailable), because the client can't cut it off.
//!
//! # Waiting
//! Waiters in no order and those in the fair queue exclude each other, because their keys are in one
//! queue. A fair waiter watches the key before its own, so that a release notifies one of them. If that
//! was the owner's, its next attempt is one transaction, which succeeds only if its key is the oldest. A
//! waiter in no order watches the whole queue. The keys of fair waiters are on a session of 15 seconds, or
//! of the ttl if that is shorter. A waiter that crashed is skipped when it ends. The key moves to the session
//! of the ttl once it is the owner's. Each waiter has a connection of its own.
//!
//! # Members that fail
//! A client talks to one member. If this member does not answer, has no leader, or is a learner, the
//! client continues at the next one. A request whose reply was lost is
//! [`Unavailable`](crate::backend::BackendError::Unavailable): it may have been carried out. Without
//! a quorum, so is every request. A keep-alive counts only if no election followed it: a leader that
//! was replaced renews leases that it does not manage any more.
//!
//! After an attempt without an answer, the holder's next request first begins a new epoch of the session:
//! then this attempt fails if it arrives later.

mod attempt;
mod client;
mod connection;
mod failure;
mod health;
mod http;
mod keys;
mod leases;
mod messages;
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
