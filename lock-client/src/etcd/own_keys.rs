//! What a client knows of the keys of its own holders.

use std::{sync::Arc, time::Duration};

use super::{client::Etcd, messages::KeyValue, session::Session};
use crate::{
    backend::BackendError,
    clock::Moment,
    holders::{Holders, Kept},
};

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
    pub(super) is_released: bool,
}

pub(super) type OwnKeys = Holders<String, OwnKey>;

impl Kept for OwnKey {
    fn until(&self) -> Moment {
        self.deadline
    }

    fn is_live(&self) -> bool {
        !self.is_released && !self.deadline.has_passed()
    }
}

impl OwnKeys {
    pub(super) fn change(&self, place: &str, change: impl FnOnce(&mut OwnKey)) {
        if let Some(own) = self.table().get_mut(place) {
            change(own);
        }
    }

    pub(super) fn forget(&self, place: &str) {
        self.forget_if(place, |_| true);
    }

    /// Lets the key be deleted at a moment, or at its deadline if that is earlier.
    pub(super) fn advance_deadline(&self, place: &str, at: Moment) {
        self.change(place, |own| own.deadline = own.deadline.min(at));
    }

    /// Waits until the keys of all ended and released holders are deleted. The callers of the releases
    /// have given up.
    pub(super) async fn deleted(&self) {
        let now = Moment::now();
        for own in self.table().values_mut().filter(|own| own.is_released) {
            own.deadline = own.deadline.min(now);
        }
        self.until_none_has_ended().await;
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
        let new =
            OwnKey { turn: None, session: None, late: None, deadline, ttl, is_released: false };
        // A try after a release without an answer begins anew.
        self.own.table().entry(place.to_owned()).or_insert(new).is_released = false;
        let known = |own: &mut OwnKey| OwnKey { turn: own.turn.take(), ..own.clone() };
        self.lasts(place, ttl, deadline, known)
    }

    /// Sets when the key of a known holder is deleted, and lets the task do so.
    fn lasts<T>(
        &self,
        place: &str,
        ttl: Duration,
        deadline: Moment,
        change: impl FnOnce(&mut OwnKey) -> T,
    ) -> Result<T, BackendError> {
        let changed = self.own.change_live(place, |own| {
            (own.ttl, own.deadline) = (ttl, deadline);
            change(own)
        });
        self.own.keeper.start(|| self.clone().delete_in_time());
        changed.ok_or_else(|| self.unavailable("the lease has ended, and its lock was deleted"))
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
        let remembered = self.own.change_live(place, |own| own.late = Some(session.clone()));
        remembered.ok_or_else(|| self.unavailable("the attempt took longer than its ttl"))
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
        self.lasts(place, ttl, asked + ttl, |own| own.session = Some(session.clone()))
    }
}

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
