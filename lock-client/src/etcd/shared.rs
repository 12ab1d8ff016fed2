//! The leases that the locks of a client share.
//!
//! To make a lease and to revoke it are two durable writes. So the locks that a client acquires at
//! about one time share one lease, which lasts longer than their ttl: by an eighth, from 2 to 4
//! seconds. New locks join it for 95 % of the extra time. Nobody ever keeps a shared lease alive, and
//! nobody revokes it: only its time ends it. So no request that arrives late can end, or keep, the lock
//! of another owner. A renewal moves a lock to a lease of its own.
//!
//! An attempt without an answer may arrive when its holder is gone. It would acquire the lock for
//! nobody, because its lease is alive. So the client closes this lease before it sends the next attempt
//! or a release of the same holder: it puts a key, and an attempt succeeds only if there is no such key.
//! The key lives by the lease itself, so it exists as long as the attempt could succeed. Other holders
//! don't wait for that.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde::de::IgnoredAny;

use super::{
    client::Etcd,
    failure::Failure,
    gate::Gate,
    keys,
    leases::Alive,
    messages::{Put, Text, Txn, TxnReply},
};
use crate::{backend::BackendError, clock::Moment};

/// The least and the most by which a shared lease lasts longer than the ttl of its locks. More would
/// leave fewer leases behind, but a lock is granted for its ttl, and at most 5 seconds more.
const EXTRA_SECONDS: RangeInclusive<i64> = 2..=4;
/// The part of the extra time for which new locks may join a shared lease, in percent. It is less than
/// the whole, because etcd's clock may run faster.
const JOINABLE_PERCENT: u32 = 95;

/// How much longer than twice the time of its lease an attempt without an answer is remembered.
const ELECTIONS: Duration = Duration::from_secs(60);

/// By how much a shared lease lasts longer than the ttl of its locks: by an eighth, within limits.
fn extra_seconds(ttl_seconds: i64) -> i64 {
    (ttl_seconds / 8).clamp(*EXTRA_SECONDS.start(), *EXTRA_SECONDS.end())
}

/// How long new locks may join a shared lease, from the request for it.
fn joinable_for(extra_seconds: i64) -> Duration {
    Duration::from_secs(extra_seconds.unsigned_abs()) * JOINABLE_PERCENT / 100
}

/// The leases that the locks of a client share. Clones share them.
#[derive(Clone, Default)]
pub(super) struct SharedLeases {
    state: Arc<Mutex<State>>,
    /// Attempts at one time wait for the lease that one of them requests, and join it.
    granting: Arc<Gate>,
    /// Others wait while a lease is closed, and do not close it again.
    closing: Arc<Gate>,
}

#[derive(Default)]
struct State {
    /// The newest lease for each ttl in seconds, and until when new locks may join it.
    newest: HashMap<i64, (Alive, Moment)>,
    /// The shortest ttl in seconds for which etcd has made a lease.
    shortest: Option<i64>,
    /// The leases of attempts without an answer. They are not closed yet.
    unanswered: BTreeMap<i64, Unanswered>,
}

/// The attempts without an answer on one lease.
struct Unanswered {
    /// The keys that they put.
    places: BTreeSet<String>,
    /// The lease has ended long before.
    forget_at: Moment,
}

impl SharedLeases {
    fn find(&self, seconds: i64, asked: Moment) -> Option<Alive> {
        let state = self.state();
        let (alive, until) = state.newest.get(&seconds)?;
        (asked < *until).then_some(*alive)
    }

    fn insert(&self, seconds: i64, alive: Alive, requested: Moment) {
        let mut state = self.state();
        state.newest.retain(|_, (_, until)| requested < *until);
        let until = requested + joinable_for(alive.seconds - seconds);
        state.newest.insert(seconds, (alive, until));
        state.shortest = Some(state.shortest.map_or(seconds, |shortest| shortest.min(seconds)));
    }

    /// Returns how long the next lease for this ttl lasts. etcd shows its shortest time only in what it
    /// grants, so the first lease has no extra time.
    fn next_seconds(&self, seconds: i64) -> i64 {
        match self.state().shortest {
            Some(shortest) if shortest <= seconds => seconds + extra_seconds(seconds),
            _ => seconds,
        }
    }

    /// Lets no more locks join this lease.
    pub(super) fn forget(&self, lease: i64) {
        self.state().newest.retain(|_, (alive, _)| alive.id != lease);
    }

    /// Remembers an attempt without an answer, and forgets those whose leases have ended.
    fn insert_unanswered(&self, lease: Alive, place: &str) {
        let mut state = self.state();
        state.unanswered.retain(|_, unanswered| !unanswered.forget_at.has_passed());
        let lasts = Duration::from_secs(lease.seconds.unsigned_abs());
        let new = || Unanswered {
            places: BTreeSet::new(),
            // An election gives a lease its full time again.
            forget_at: Moment::now() + (2 * lasts + ELECTIONS),
        };
        let unanswered = state.unanswered.entry(lease.id).or_insert_with(new);
        unanswered.places.insert(place.to_owned());
    }

    /// Returns the leases of the attempts without an answer that put this key.
    pub(super) fn unanswered(&self, place: &str) -> Vec<i64> {
        let state = self.state();
        let of_place = state.unanswered.iter().filter(|(_, it)| it.places.contains(place));
        of_place.map(|(&lease, _)| lease).collect()
    }

    fn remove_unanswered(&self, lease: i64) {
        self.state().unanswered.remove(&lease);
    }

    /// Forgets an attempt on this lease that has put this key, and so does not arrive later.
    pub(super) fn forget_unanswered(&self, lease: i64, place: &str) {
        if let Some(unanswered) = self.state().unanswered.get_mut(&lease) {
            unanswered.places.remove(place);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this")
    }
}

/// An attempt on a shared lease. If it is dropped, the attempt had no answer.
struct Pending<'a> {
    leases: &'a SharedLeases,
    lease: Alive,
    place: &'a str,
    is_answered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.leases.forget(self.lease.id);
            self.leases.insert_unanswered(self.lease, self.place);
        }
    }
}

impl Etcd {
    /// Returns a shared lease that lasts for this time, or longer, after `asked`.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if etcd's shortest time is longer.
    pub(super) async fn shared_lease(
        &self,
        seconds: i64,
        asked: Moment,
    ) -> Result<Alive, BackendError> {
        let granting = async {
            if let Some(alive) = self.shared.find(seconds, asked) {
                return Ok(alive);
            }
            // An id without an answer is never used: its lease ends by itself.
            let (id, lasts) = (keys::shared_lease(), self.shared.next_seconds(seconds));
            let requested = Moment::now();
            let granted = self.connection.grant(id, lasts..=lasts, seconds).await?;
            let alive = granted.ok_or(Failure::LeaseExists)?;
            self.shared.insert(seconds, alive, requested);
            Ok(alive)
        };
        self.shared.granting.run(granting).await
    }

    /// Sends the transaction of an attempt on a shared lease, which puts the key of a holder. Returns
    /// `None` if the lease does not exist, such as after a restore.
    pub(super) async fn attempt_on(
        &self,
        lease: Alive,
        place: &str,
        transaction: &Txn,
    ) -> Result<Option<TxnReply>, BackendError> {
        let mut pending = Pending { leases: &self.shared, lease, place, is_answered: false };
        let reply = self.connection.call("kv/txn", transaction).await;
        pending.is_answered = !reply.as_ref().is_err_and(Failure::leaves_it_under_way);
        match reply {
            Ok(reply) => Ok(Some(reply)),
            Err(Failure::NoLease) => {
                self.shared.forget(lease.id);
                Ok(None)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Closes the leases of all attempts without an answer that put this key, so that none of them
    /// succeeds later.
    pub(super) async fn close_unanswered(&self, place: &str) -> Result<(), BackendError> {
        if self.shared.unanswered(place).is_empty() {
            return Ok(());
        }
        let closing = async {
            for lease in self.shared.unanswered(place) {
                let put =
                    Put { key: Text(keys::closing_key(lease)), value: Text::default(), lease };
                match self.connection.call::<IgnoredAny>("kv/put", &put).await {
                    Ok(_) | Err(Failure::NoLease) => self.shared.remove_unanswered(lease),
                    Err(failure) => return Err(failure.into()),
                }
            }
            Ok(())
        };
        self.shared.closing.run(closing).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ttl::Ttl;

    #[test]
    fn shared_lease_lasts_for_the_ttl_of_each_of_its_locks() {
        for seconds in [1, 2, 16, 24, 30, 32, 3_600, 6 * 86_400] {
            let (shared, asked) = (SharedLeases::default(), Moment::now());
            let extra = extra_seconds(seconds);
            let lease = Alive::granted(2, seconds + extra);
            shared.insert(seconds, lease, asked);
            let ttl = |seconds: i64| Ttl::from_secs(seconds.unsigned_abs()).unwrap();
            let ends = asked + ttl(lease.seconds).reliable();
            let last = asked + (joinable_for(extra) - Duration::from_nanos(1));
            assert_eq!(shared.find(seconds, last).map(|found| found.id), Some(2));
            assert!(last + ttl(seconds).reliable() < ends, "{seconds}");
            assert!(shared.find(seconds, asked + joinable_for(extra)).is_none());
            assert!(shared.find(seconds + 1, asked).is_none(), "of another ttl");
        }
    }

    #[test]
    fn first_lease_shows_whether_the_ttl_is_long_enough() {
        let (shared, asked) = (SharedLeases::default(), Moment::now());
        assert_eq!(shared.next_seconds(30), 30);
        shared.insert(30, Alive::granted(2, 30), asked);
        assert!(shared.find(30, asked).is_none(), "it does not last longer than for its lock");
        for (seconds, next) in [(29, 29), (30, 33), (60, 64)] {
            assert_eq!(shared.next_seconds(seconds), next);
        }
    }

    #[test]
    fn no_lock_joins_the_lease_of_an_attempt_without_an_answer() {
        for is_answered in [true, false] {
            let (shared, asked) = (SharedLeases::default(), Moment::now());
            shared.insert(30, Alive::granted(2, 33), asked);
            let lease = Alive::granted(2, 33);
            drop(Pending { leases: &shared, lease, place: "own", is_answered });
            assert_eq!(shared.find(30, asked).is_some(), is_answered);
            assert_eq!(shared.unanswered("own").is_empty(), is_answered);
            assert!(shared.unanswered("other").is_empty());
            shared.remove_unanswered(2);
            assert!(shared.unanswered("own").is_empty());
        }
    }
}
