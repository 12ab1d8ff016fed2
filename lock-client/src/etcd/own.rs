//! What a client knows of its own holders, and the task that deletes their keys when their time is
//! up.
//!
//! A session lives as long as any lock of it is renewed. So a lock that is not renewed any more, a
//! waiter that tries no more, and a holder whose release had no answer are deleted, again and again
//! until that is answered. If there is no answer for a ttl, the session is given up: nobody keeps
//! it alive, and it ends with what is left on it. Its other locks move to a new session.
//!
//! A client has one such task, as long as it has holders. It also keeps a connection for them.

use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinHandle, time::sleep};

use super::{
    client::Etcd,
    keys::{self, Keys},
    messages::{KeyValue, Txn, delete},
    session::Session,
    view::{Part, View},
};
use crate::{backend::BackendError, clock::Moment, retry::pauses};

/// How many keys a transaction deletes. `--max-txn-ops` is 128 by default.
const DELETIONS: usize = 100;
/// The longest pause before a deletion without an answer is repeated, or a connection is made
/// again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a caller may pause before it repeats a release without an answer. Then the task takes
/// over.
const LONGEST_REPETITION: Duration = Duration::from_secs(2);

/// A holder of this client.
#[derive(Clone, Default)]
pub(super) struct OwnHolder {
    /// The own key, since a watch has shown that the owner's is gone.
    pub(super) turn: Option<KeyValue>,
    /// The session of the own key, as far as it is known to exist.
    pub(super) session: Option<Arc<Session>>,
    /// The session of a request without an answer that makes the own key. It may arrive later.
    pub(super) late: Option<Arc<Session>>,
    /// Until when the lock is held, if nobody else ends it.
    pub(super) held_until: Option<Moment>,
    /// When the key is deleted, unless the holder tries again or renews before.
    delete_at: Option<Moment>,
    ttl: Duration,
    /// Whether a release had no answer.
    is_doubtful: bool,
    is_ending: bool,
}

impl OwnHolder {
    fn has_ended(&self) -> bool {
        self.delete_at.is_some_and(Moment::has_passed)
    }
}

/// The holders of a client, by their keys. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OwnHolders {
    table: Arc<Mutex<Table>>,
    /// Notified when a key must be deleted sooner than expected.
    is_sooner: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    holders: HashMap<String, OwnHolder>,
    task: Option<JoinHandle<()>>,
    /// When the task looks next.
    looks_at: Option<Moment>,
}

impl OwnHolders {
    pub(super) fn get(&self, place: &str) -> Option<OwnHolder> {
        self.table().holders.get(place).cloned()
    }

    pub(super) fn change(&self, place: &str, change: impl FnOnce(&mut OwnHolder)) {
        if let Some(holder) = self.table().holders.get_mut(place) {
            change(holder);
        }
    }

    pub(super) fn forget(&self, place: &str) {
        self.table().holders.remove(place);
    }

    /// Sets when the key is deleted.
    pub(super) fn delete_at(&self, place: &str, at: Moment) {
        self.change(place, |own| own.delete_at = Some(at));
        if self.table().looks_at.is_some_and(|looks_at| at < looks_at) {
            self.is_sooner.notify_one();
        }
    }

    /// Returns the holders whose time is up, and lets them try no more. A lock with a session of
    /// its own ends with it: another process may keep it.
    fn ended(&self) -> Vec<(String, OwnHolder)> {
        let mut table = self.table();
        table.holders.retain(|_, own| {
            let has_own = own.session.as_ref().is_some_and(|session| !session.is_shared());
            !(own.has_ended() && has_own && own.late.is_none() && !own.is_doubtful)
        });
        let ended = table.holders.iter_mut().filter(|(_, own)| own.has_ended());
        let ended = ended.map(|(place, own)| {
            own.is_ending = true;
            (place.clone(), own.clone())
        });
        ended.collect()
    }

    /// Returns when the task must look again. If there are no holders, the task ends.
    fn looks_at(&self) -> Option<Moment> {
        let mut table = self.table();
        table.looks_at = table.holders.values().filter_map(|own| own.delete_at).min();
        if table.looks_at.is_none() {
            table.task = None;
        }
        table.looks_at
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nothing panics while it holds this")
    }
}

/// A release. If it is dropped without an answer, the task takes over.
struct Releasing<'a> {
    etcd: &'a Etcd,
    place: &'a str,
    is_answered: bool,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return self.etcd.own.forget(self.place);
        }
        self.etcd.own.change(self.place, |own| own.is_doubtful = true);
        self.etcd.own.delete_at(self.place, Moment::now() + LONGEST_REPETITION);
    }
}

impl Etcd {
    /// Remembers a holder, whose key is deleted at a moment. Returns what was known of it.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] while the key is being deleted.
    pub(super) fn remember(
        &self,
        place: &str,
        ttl: Duration,
        delete_at: Moment,
    ) -> Result<OwnHolder, BackendError> {
        let known = {
            let mut table = self.own.table();
            // The task ends with its runtime.
            if table.task.as_ref().is_none_or(JoinHandle::is_finished) {
                table.task = Some(tokio::spawn(self.clone().keep_holders()));
            }
            let own = table.holders.entry(place.to_owned()).or_default();
            if own.is_ending {
                let reason = "the lease has ended, and its lock is being deleted";
                return Err(self.unavailable(reason));
            }
            (own.ttl, own.delete_at) = (ttl, Some(delete_at));
            OwnHolder { turn: own.turn.take(), ..own.clone() }
        };
        self.own.delete_at(place, delete_at);
        Ok(known)
    }

    /// Remembers that a lock is held.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] while the lock is being deleted, because its time was up.
    pub(super) fn remember_lock(
        &self,
        place: &str,
        session: &Arc<Session>,
        ttl: Duration,
        asked: Moment,
    ) -> Result<(), BackendError> {
        let held_until = asked + ttl;
        self.remember(place, ttl, held_until)?;
        self.own.change(place, |own| {
            own.session = Some(session.clone());
            own.held_until = Some(held_until);
        });
        Ok(())
    }

    /// Releases the lock, or leaves the queue. Returns whether the lock was held.
    pub(super) async fn release_holder(
        &self,
        keys: &Keys,
        place: &str,
    ) -> Result<bool, BackendError> {
        let mut releasing = Releasing { etcd: self, place, is_answered: false };
        let own = self.own.get(place);
        // 1. No request of the holder may make its key later. etcd may have no space to prevent
        // that, or others may be waiting to do the same.
        let late = own.as_ref().and_then(|own| own.late.as_ref());
        let sealed = match late {
            Some(session) => self.within(1, self.seal(session)).await,
            None => Ok(()),
        };
        // 2. Delete the own key, in any case. No other holder ever has it, whatever its revision.
        let success = vec![View::read_of_queue(keys, Part::Owner), delete(place)];
        let reply = self.held.transact(&Txn { success, ..Txn::default() }).await?;
        let was_there = reply.deleted() > 0;
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        let owned = view.owner().filter(|owner| owner.key.0 == place);
        // 3. A request that has made the key does not arrive later.
        if !was_there {
            sealed.map_err(BackendError::after_a_change)?;
        }
        releasing.is_answered = true;
        // 4. A session that no other lock shares ends with its lock, now or with its time.
        if let Some(lease) = owned.map(|owner| owner.lease).filter(|&lease| !keys::is_shared(lease))
        {
            let _ended_or_not = self.held.revoke(lease).await;
        }
        // 5. If an earlier release had no answer, it has deleted the key of a lock that still was
        // held.
        let earlier = own.filter(|own| own.is_doubtful).and_then(|own| own.held_until);
        Ok(owned.is_some() || !was_there && earlier.is_some_and(|until| !until.has_passed()))
    }

    /// Deletes keys in time, and keeps a connection. Ends when there are no holders.
    async fn keep_holders(self) {
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut repeats_in = None;
        while let Some(next) = self.own.looks_at() {
            match repeats_in {
                Some(pause) => sleep(pause).await,
                None => tokio::select! {
                    () = next.passed() => self.connection.http().close_spare(),
                    () = self.own.is_sooner.notified() => {}
                    () = self.connection.http().lost.notified() => {}
                },
            }
            if self.own.table().holders.is_empty() {
                continue;
            }
            let (kept, is_swept) = tokio::join!(self.connection.keep(), self.sweep());
            repeats_in = None;
            if kept.is_ok() && is_swept {
                pauses = self::pauses(LONGEST_PAUSE);
            } else {
                repeats_in = pauses.next();
            }
        }
    }

    /// Deletes the keys of holders whose time is up. Returns whether none is left.
    async fn sweep(&self) -> bool {
        let (ended, mut failure) = (self.own.ended(), None);
        // 1. No request of theirs may make a key later.
        for session in ended.iter().filter_map(|(_, own)| own.late.as_ref()) {
            failure = self.within(1, self.seal(session)).await.err();
            if failure.is_some() {
                break;
            }
        }
        // 2. Delete the keys, in any case.
        for ended in ended.chunks(DELETIONS) {
            let success = ended.iter().map(|(place, _)| delete(place)).collect();
            match self.held.transact(&Txn { success, ..Txn::default() }).await {
                Ok(_) => {
                    let is_sealed =
                        |own: &OwnHolder| own.late.as_ref().is_none_or(|it| it.is_sealed());
                    let done = ended.iter().filter(|(_, own)| is_sealed(own));
                    done.for_each(|(place, _)| self.own.forget(place));
                }
                Err(error) => failure = Some(error.into()),
            }
        }
        // 3. Let the sessions of those end that are left for too long.
        let Some(error) = failure else { return true };
        for (place, _) in &ended {
            let left = self.own.get(place).filter(|own| {
                own.delete_at.is_some_and(|delete_at| (delete_at + own.ttl).has_passed())
            });
            let Some(own) = left else { continue };
            let error = &error as &dyn Error;
            tracing::warn!(error, "a lock whose lease has ended could not be deleted");
            own.session.iter().chain(&own.late).for_each(|it| it.give_up());
            self.own.forget(place);
        }
        false
    }
}
