//! What a client knows of the keys of its own holders.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fence::Holder;
use tokio::{sync::Notify, task::JoinHandle};

use super::{client::Etcd, keys, messages::KeyValue, session::Session};
use crate::{backend::BackendError, clock::Moment};

/// The key of one of this client's holders, which may not exist.
#[derive(Clone)]
pub(super) struct OwnKey {
    /// The own key, since a watch has shown that the owner's is gone.
    pub(super) turn: Option<KeyValue>,
    /// The session of the own key, as far as it is known to exist.
    pub(super) session: Option<Arc<Session>>,
    /// The session of a request without an answer that makes the own key. It may arrive later.
    pub(super) late: Option<Arc<Session>>,
    /// When the key is deleted, unless the holder tries again or renews before. From then on, the
    /// holder is ending: it can do neither.
    pub(super) deadline: Moment,
    pub(super) ttl: Duration,
    /// Whether it is being released. The caller may have given up.
    is_released: bool,
}

/// The keys of a client's holders. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OwnKeys {
    table: Arc<Mutex<Table>>,
    /// Notified when a key must be deleted sooner than expected.
    pub(super) is_sooner: Arc<Notify>,
    /// Notified when a holder is forgotten.
    forgotten: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    holders: HashMap<String, OwnKey>,
    task: Option<JoinHandle<()>>,
    /// When the task looks next.
    looks_at: Option<Moment>,
}

impl OwnKeys {
    pub(super) fn get(&self, place: &str) -> Option<OwnKey> {
        self.table().holders.get(place).cloned()
    }

    pub(super) fn change(&self, place: &str, change: impl FnOnce(&mut OwnKey)) {
        if let Some(holder) = self.table().holders.get_mut(place) {
            change(holder);
        }
    }

    pub(super) fn forget(&self, place: &str) {
        self.table().holders.remove(place);
        self.forgotten.notify_waiters();
    }

    /// Lets the key of a holder that is being released be deleted at a moment, or at its deadline if
    /// that is earlier. The caller may have given up then.
    pub(super) fn release_until(&self, place: &str, at: Moment) {
        self.change(place, |own| own.is_released = true);
        self.advance_deadline(place, at);
    }

    /// Waits until the keys of all ended and released holders are deleted. The callers of the releases
    /// have given up.
    pub(super) async fn deleted(&self) {
        let now = Moment::now();
        for own in self.table().holders.values_mut().filter(|own| own.is_released) {
            own.deadline = own.deadline.min(now);
        }
        self.is_sooner.notify_one();
        loop {
            let forgotten = self.forgotten.notified();
            if !self.table().holders.values().any(|own| own.deadline.has_passed()) {
                return;
            }
            forgotten.await;
        }
    }

    /// Lets the key be deleted at a moment, if it is not sooner anyway.
    pub(super) fn advance_deadline(&self, place: &str, at: Moment) {
        self.change(place, |own| own.deadline = own.deadline.min(at));
        if self.table().looks_at.is_some_and(|looks_at| at < looks_at) {
            self.is_sooner.notify_one();
        }
    }

    /// Forgets a holder whose lock goes on without this client.
    pub(super) fn forget_holder(&self, holder: &Holder) {
        let is_other = |place: &str| keys::holder_in_queue(place) != Some(holder.as_str());
        self.table().holders.retain(|place, _| is_other(place));
        self.forgotten.notify_waiters();
    }

    /// Returns the holders whose time is up.
    pub(super) fn ended(&self) -> Vec<(String, OwnKey)> {
        let table = self.table();
        let ended = table.holders.iter().filter(|(_, own)| own.deadline.has_passed());
        ended.map(|(place, own)| (place.clone(), own.clone())).collect()
    }

    /// Returns when the task must look again. If there are no holders, the task ends.
    pub(super) fn looks_at(&self) -> Option<Moment> {
        let mut table = self.table();
        table.looks_at = table.holders.values().map(|own| own.deadline).min();
        if table.looks_at.is_none() {
            table.task = None;
        }
        table.looks_at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().holders.is_empty()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("nothing panics while it holds this")
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
        deadline: Moment,
    ) -> Result<OwnKey, BackendError> {
        let mut table = self.own.table();
        let new =
            OwnKey { turn: None, session: None, late: None, deadline, ttl, is_released: false };
        let own = table.holders.entry(place.to_owned()).or_insert(new);
        // A try after a release without an answer begins anew.
        own.is_released = false;
        let known = OwnKey { turn: own.turn.take(), ..own.clone() };
        self.lasts(&mut table, place, ttl, deadline).map(|_| known)
    }

    /// Sets when the key of a known holder is deleted, and lets the task do so.
    fn lasts<'a>(
        &self,
        table: &'a mut Table,
        place: &str,
        ttl: Duration,
        deadline: Moment,
    ) -> Result<&'a mut OwnKey, BackendError> {
        // The task ends with its runtime.
        if table.task.as_ref().is_none_or(JoinHandle::is_finished) {
            table.task = Some(tokio::spawn(self.clone().delete_in_time()));
        }
        if table.looks_at.is_some_and(|looks_at| deadline < looks_at) {
            self.own.is_sooner.notify_one();
        }
        let own = known(table, place);
        let own =
            own.ok_or_else(|| self.unavailable("the lease has ended, and its lock was deleted"))?;
        (own.ttl, own.deadline) = (ttl, deadline);
        Ok(own)
    }

    /// Remembers that a request may make the key on a session. If that arrives late, the holder's end
    /// prevents it. A request of a holder that is not known any more would make a key for nobody.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the holder was released, or its time was up, such as after a
    /// suspension.
    pub(super) fn remember_put(
        &self,
        place: &str,
        session: &Arc<Session>,
    ) -> Result<(), BackendError> {
        let mut table = self.own.table();
        let own = known(&mut table, place);
        let own = own.ok_or_else(|| self.unavailable("the attempt took longer than its ttl"))?;
        own.late = Some(session.clone());
        Ok(())
    }

    /// Remembers a holder whose lock this client may not know yet. Unless the adoption succeeds, this
    /// forgets the holder: another process may have its lock.
    pub(super) fn begin_adoption<'a>(
        &'a self,
        place: &'a str,
        ttl: Duration,
        asked: Moment,
    ) -> Result<Adoption<'a>, BackendError> {
        let is_new = self.own.get(place).is_none();
        if is_new {
            self.remember(place, ttl, asked + ttl)?;
        }
        Ok(Adoption { own: &self.own, place: is_new.then_some(place) })
    }

    /// Remembers that a lock of a known holder is held until its ttl ends.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if it was detached, released or deleted meanwhile.
    pub(super) fn remember_lock(
        &self,
        place: &str,
        session: &Arc<Session>,
        ttl: Duration,
        asked: Moment,
    ) -> Result<(), BackendError> {
        let mut table = self.own.table();
        self.lasts(&mut table, place, ttl, asked + ttl)?.session = Some(session.clone());
        Ok(())
    }
}

/// Returns what is known of a holder that may go on: it was not released, and its time is not up.
fn known<'a>(table: &'a mut Table, place: &str) -> Option<&'a mut OwnKey> {
    let goes_on = |own: &&mut OwnKey| !own.is_released && !own.deadline.has_passed();
    table.holders.get_mut(place).filter(goes_on)
}

/// The adoption of a lock, which may fail.
pub(super) struct Adoption<'a> {
    own: &'a OwnKeys,
    /// The key of a holder that is forgotten if this fails.
    place: Option<&'a str>,
}

impl Adoption<'_> {
    pub(super) fn succeed(mut self) {
        self.place = None;
    }
}

impl Drop for Adoption<'_> {
    fn drop(&mut self) {
        // The task repeats a release that had no answer.
        if let Some(place) = self.place
            && self.own.get(place).is_some_and(|own| !own.is_released)
        {
            self.own.forget(place);
        }
    }
}

#[cfg(test)]
impl OwnKey {
    /// The key of a holder whose time was up long ago.
    pub(super) fn ended(session: Arc<Session>) -> Self {
        let (ttl, session) = (Duration::from_secs(2), Some(session));
        let deadline = Moment::now().checked_sub(2 * ttl).expect("the machine runs for longer");
        Self { turn: None, session, late: None, deadline, ttl, is_released: true }
    }
}
