//! The leases that the locks of a client share.
//!
//! To make a lease and to revoke it are two durable writes. So the locks that a client acquires within
//! two seconds share one lease, which lasts two seconds longer than their ttl. Nobody ever keeps a
//! shared lease alive, and nobody revokes it: only its time ends it. So no request that arrives late
//! can end, or keep, the lock of another owner. A renewal moves a lock to a lease of its own.
//!
//! An attempt without an answer may arrive when its holder is gone. It would acquire the lock for
//! nobody, because its lease is alive. So the client closes this lease before it sends the next attempt
//! or a release: it puts a key, and an attempt succeeds only if there is no such key. The key lives by
//! the lease itself, so it exists as long as the attempt could succeed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde::de::IgnoredAny;

use super::{
    client::Etcd,
    failure::Failure,
    keys,
    leases::Alive,
    messages::{Put, Text, Txn, TxnReply},
};
use crate::{backend::BackendError, clock::Moment};

/// How much longer a shared lease lasts than the ttl of its locks.
const EXTRA_SECONDS: i64 = 2;
/// How long after the request for it a shared lease is taken for another lock. It is less than the
/// extra time, because etcd's clock may run faster.
const TAKEN_FOR: Duration = Duration::from_millis(1_900);

/// The leases that the locks of a client share. Clones share them.
#[derive(Clone, Default)]
pub(super) struct SharedLeases {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The newest lease for each ttl in seconds, and until when it is taken.
    newest: HashMap<i64, (Alive, Moment)>,
    /// The leases of attempts without an answer. They are not closed yet.
    unanswered: Vec<i64>,
}

impl SharedLeases {
    fn find(&self, seconds: i64, asked: Moment) -> Option<Alive> {
        let state = self.state();
        let (alive, until) = state.newest.get(&seconds)?;
        (asked < *until).then_some(*alive)
    }

    fn insert(&self, seconds: i64, alive: Alive, asked: Moment) {
        let newest = &mut self.state().newest;
        newest.retain(|_, (_, until)| asked < *until);
        newest.insert(seconds, (alive, asked + TAKEN_FOR));
    }

    /// Lets no more locks take this lease.
    pub(super) fn forget(&self, lease: i64) {
        self.state().newest.retain(|_, (alive, _)| alive.id != lease);
    }

    fn unanswered(&self) -> Vec<i64> {
        self.state().unanswered.clone()
    }

    fn closed(&self, lease: i64) {
        self.state().unanswered.retain(|&unanswered| unanswered != lease);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this")
    }
}

/// An attempt on a shared lease. If it is dropped, the attempt had no answer.
struct Pending<'a> {
    leases: &'a SharedLeases,
    lease: i64,
    is_answered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.leases.forget(self.lease);
            self.leases.state().unanswered.push(self.lease);
        }
    }
}

impl Etcd {
    /// Returns a shared lease that lasts for this time, or longer, after `asked`.
    pub(super) async fn shared_lease(
        &self,
        seconds: i64,
        asked: Moment,
    ) -> Result<Alive, BackendError> {
        if let Some(alive) = self.shared.find(seconds, asked) {
            return Ok(alive);
        }
        // An id without an answer is never used: its lease ends by itself.
        let (id, lasts) = (keys::shared_lease(), seconds + EXTRA_SECONDS);
        let granted = self.connection.grant(id, lasts..=lasts).await?;
        let alive = granted.ok_or(Failure::LeaseExists)?;
        self.shared.insert(seconds, alive, asked);
        Ok(alive)
    }

    /// Sends the transaction of an attempt on a shared lease. Returns `None` if the lease does not
    /// exist, such as after a restore.
    pub(super) async fn attempt_on(
        &self,
        lease: i64,
        transaction: &Txn,
    ) -> Result<Option<TxnReply>, BackendError> {
        let mut pending = Pending { leases: &self.shared, lease, is_answered: false };
        let reply = match self.connection.call("kv/txn", transaction).await {
            Ok(reply) => Some(reply),
            Err(Failure::NoLease) => {
                self.shared.forget(lease);
                None
            }
            Err(failure) => return Err(failure.into()),
        };
        pending.is_answered = true;
        Ok(reply)
    }

    /// Closes the leases of all attempts without an answer, so that none of them succeeds later.
    pub(super) async fn close_unanswered(&self) -> Result<(), BackendError> {
        for lease in self.shared.unanswered() {
            let put = Put { key: Text(keys::closed(lease)), value: Text::default(), lease };
            match self.connection.call::<IgnoredAny>("kv/put", &put).await {
                Ok(_) | Err(Failure::NoLease) => self.shared.closed(lease),
                Err(failure) => return Err(failure.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ttl::Ttl;

    #[test]
    fn shared_lease_lasts_for_the_ttl_of_each_of_its_locks() {
        let (shared, asked) = (SharedLeases::default(), Moment::now());
        let lease = Alive::granted(2, 30 + EXTRA_SECONDS);
        shared.insert(30, lease, asked);
        let ttl = Ttl::from_secs(30).unwrap();
        let ends = asked + Ttl::from_secs(lease.seconds.unsigned_abs()).unwrap().reliable();
        let last = asked + (TAKEN_FOR - Duration::from_nanos(1));
        assert_eq!(shared.find(30, last).map(|found| found.id), Some(2));
        assert!(last + ttl.reliable() < ends);
        assert!(shared.find(30, asked + TAKEN_FOR).is_none());
        assert!(shared.find(31, asked).is_none(), "of another ttl");
    }

    #[test]
    fn lease_of_an_attempt_without_an_answer_is_taken_no_more() {
        for is_answered in [true, false] {
            let (shared, asked) = (SharedLeases::default(), Moment::now());
            shared.insert(30, Alive::granted(2, 32), asked);
            drop(Pending { leases: &shared, lease: 2, is_answered });
            assert_eq!(shared.find(30, asked).is_some(), is_answered);
            assert_eq!(shared.unanswered().is_empty(), is_answered);
            shared.closed(2);
            assert!(shared.unanswered().is_empty());
        }
    }
}
