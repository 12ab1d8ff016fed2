//! Locks in etcd, 3.4 or newer.
//!
//! **Where the token comes from.** Each change of etcd's data gets a revision, a number that grows.
//! An owner has a key. Its create revision, plus an offset that the lock's name has, is the token.
//! The offset is 0 until a reissue raises it.
//!
//! **Why it grows.** The owner is the holder whose key is the oldest of its name. So a later
//! owner's key has a higher create revision, and nothing ever lowers the offset. A waiter reads the
//! offset only once its own key is the oldest, in the transaction that shows this.
//!
//! **What breaks that.** A cluster that was restored from a snapshot counts its revisions from
//! there. Then a token may be issued twice. The storage distinguishes the two holders, and rejects
//! the later one, which continues with a higher token ([`Lease::reissue`](crate::Lease::reissue)).
//! Restarts, elections, and members that fail break no token.
//!
//! # Versions
//! Before 3.4.31 and 3.5.13, a leader that was paused or cut off, and was replaced meanwhile, may
//! revoke leases that its successor has renewed. Then a second client acquires a lock that its
//! owner renews. The storage rejects the first one. Upgrade etcd where the lock must exclude.
//!
//! # Keys
//! `fenced/NAME/queue/HOLDER` and `fenced/NAME/offset`, and sometimes `fenced//seal/LEASE`. In the
//! name, `%` and `/` become `%25` and `%2F`. With authentication, a client needs the permission to
//! read and write the prefix `fenced/`.
//!
//! # Time to live
//! A key lives by a lease of etcd, whose time is in whole seconds. Other ttls are
//! [invalid](crate::backend::BackendError::Invalid). So are those below etcd's shortest time, which
//! is one and a half election time-outs: 2 seconds by default.
//!
//! # Sessions
//! The locks of a client with one ttl share a session: one lease, which each renewal keeps alive
//! for all of them. If a session ends, all its locks are lost. A lock that another process may take
//! over ([`Terms::detachable`](crate::Terms::detachable)) has a session of its own. A session
//! doesn't end with a lock. So the client deletes a lock at its release, at its deadline, and at
//! the end of [`max_hold`](crate::Terms::max_hold), and repeats that until etcd answers. If a
//! deletion has no answer for a ttl, the client gives the session up, which ends within a ttl. So
//! such a lock may be free only two ttls after its deadline.
//!
//! # Waiting
//! Both orders exclude each other, because all keys are in one queue. A fair waiter watches the key
//! before its own, so that a release notifies one of them. A waiter in no order watches the whole
//! queue. The keys of fair waiters are on a session of 15 seconds, or of the ttl if that is
//! shorter, until they own the lock. A waiter that crashed, or that its program does not poll, is
//! skipped then.
//!
//! # Requests without an answer
//! They are [`Unavailable`](crate::backend::BackendError::Unavailable): they may have been carried
//! out. A client talks to one member. If this one does not answer, has no leader, or is a learner,
//! the client continues at the next one. A keep-alive counts only if no election followed it,
//! because a leader that was replaced renews leases that it does not manage any more. Before a
//! holder whose attempt had no answer is released, or tries again, its session is sealed: then the
//! attempt fails if it arrives later.
//!
//! An etcd that has reached its quota (alarm `NOSPACE`) stores nothing more. Attempts fail, and
//! renewals and releases succeed. If an attempt may still arrive, its release is `Unavailable`,
//! because nothing can be sealed.

mod attempt;
mod client;
mod connection;
mod failure;
mod health;
mod http;
mod keys;
mod messages;
mod own_keys;
mod release;
mod renewal;
mod server;
mod session;
mod view;
mod wakeups;

pub use self::{
    client::Etcd,
    health::{ClusterReport, LeaseClock, MemberHealth, MemberReport},
};
