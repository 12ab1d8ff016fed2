//! Locks in etcd, 3.4 or newer. The section "etcd" of the README says how to use them,
//! and what they guarantee.
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
//! Restarts, elections, and members that fail break no token. Before 3.4.31 and 3.5.13, a leader that was
//! replaced may revoke leases that its successor has renewed: then two clients hold the lock.
//!
//! # Keys
//! `fenced/NAME/queue/HOLDER` and `fenced/NAME/offset`, and sometimes `fenced//seal/LEASE`. In the
//! name, `%` and `/` become `%25` and `%2F`. With authentication, a client needs the permission to
//! read and write the prefix `fenced/`.
//!
//! # Requests without an answer
//! They are [`Unavailable`](crate::backend::BackendError::Unavailable): they may have been carried
//! out. A client talks to one member. If this one does not answer, has no leader, or is a learner,
//! the client continues at the next one. A keep-alive counts only if no election followed it,
//! because a leader that was replaced renews leases that it does not manage any more. Before a
//! holder whose attempt had no answer is released, or tries again, its session is sealed: then the
//! attempt fails if it arrives later.
//!
//! An etcd that has reached its quota (alarm `NOSPACE`) can't seal. If an attempt may still arrive, its
//! release is `Unavailable` then.

mod attempt;
mod client;
mod connection;
mod failure;
mod health;
mod http;
mod keys;
mod login;
mod messages;
mod own_keys;
mod release;
mod renewal;
mod server;
mod session;
mod stream;
mod view;
mod wakeups;

pub use self::{
    client::Etcd,
    health::{ClusterReport, LeaseClock, MemberHealth, MemberReport},
};
