//! What a client knows of its own holders. Each has a task that deletes its key when its time is up.
//!
//! A session lives as long as any lock of it is renewed. So a lock that is not renewed any more, or whose
//! release had no answer, is deleted at the end of its ttl, again and again until that is answered. If
//! there is no answer for another ttl, the session is given up: nobody keeps it alive, and it ends with
//! what is left on it. Its other locks move to a new session.

use std::{
    collections::HashMap,
    error::Error,
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fence::Holder;
use tokio::sync::Notify;

use super::{client::Etcd, keys::Keys, messages::KeyValue, session::Session};
use crate::{
    backend::{Backend, BackendError},
    background::AbortOnDrop,
    clock::Moment,
    retry::retry_until,
};

/// The key of a waiter, as a client has last seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnKey {
    pub(super) created: i64,
    pub(super) changed: i64,
}

impl From<&KeyValue> for OwnKey {
    fn from(key: &KeyValue) -> Self {
        Self { created: key.create_revision, changed: key.mod_revision }
    }
}

/// A request to put a holder's key on a session, in an epoch, that may arrive later.
#[derive(Clone)]
pub(super) struct Late {
    pub(super) session: Session,
    pub(super) epoch: i64,
}

/// The holders of a client, by their keys. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OwnHolders(Arc<Mutex<HashMap<String, OwnHolder>>>);

struct OwnHolder {
    /// The own key, since a watch has shown that the owner's is gone.
    turn: Option<OwnKey>,
    /// The session for the owner's key.
    session: Option<Session>,
    late: Vec<Late>,
    /// When the key is deleted, unless the holder tries again or renews before.
    until: Moment,
    ttl: Duration,
    is_ending: bool,
    /// The time has become shorter.
    is_sooner: Arc<Notify>,
    _task: Option<AbortOnDrop>,
}

impl OwnHolders {
    /// Remembers a holder that tries. If a watch has shown that it is the holder's turn, this returns
    /// the holder's key, once.
    fn begin_try(
        &self,
        etcd: &Etcd,
        keys: &Keys,
        holder: &Holder,
        ttl: Duration,
        asked: Moment,
    ) -> Option<Option<OwnKey>> {
        let mut holders = self.holders();
        let until = asked + ttl;
        let own = holders.entry(keys.place(holder)).or_insert_with(|| {
            let is_sooner = Arc::<Notify>::default();
            let task = etcd.clone().end_in_time(keys.clone(), holder.clone(), is_sooner.clone());
            let _task = Some(tokio::spawn(task).into());
            OwnHolder {
                turn: None,
                session: None,
                late: vec![],
                until,
                ttl,
                is_ending: false,
                is_sooner,
                _task,
            }
        });
        (own.until, own.ttl) = (until, ttl);
        (!own.is_ending).then(|| own.turn.take())
    }

    /// Remembers that it seems to be the turn of a holder.
    pub(super) fn set_turn(&self, place: &str, own: OwnKey) {
        self.change(place, |holder| holder.turn = Some(own));
    }

    /// Remembers a request to put the key, before it is sent.
    pub(super) fn sends(&self, place: &str, late: Late) {
        self.change(place, |holder| holder.late.push(late));
    }

    /// Forgets the last request to put the key, because it was answered.
    pub(super) fn answered(&self, place: &str) {
        self.change(place, |holder| drop(holder.late.pop()));
    }

    /// Forgets the requests to put the key, because none of them arrives later.
    pub(super) fn clear_late(&self, place: &str) {
        self.change(place, |holder| holder.late.clear());
    }

    /// Returns the requests to put the key that may arrive later.
    pub(super) fn late(&self, place: &str) -> Vec<Late> {
        self.holders().get(place).map(|holder| holder.late.clone()).unwrap_or_default()
    }

    /// Returns the session of a lock of this client.
    pub(super) fn session(&self, place: &str) -> Option<Session> {
        self.holders().get(place)?.session.clone()
    }

    pub(super) fn set_session(&self, place: &str, session: &Session) {
        self.change(place, |holder| holder.session = Some(session.clone()));
    }

    /// Remembers that a lock was renewed.
    pub(super) fn set_until(&self, place: &str, until: Moment) {
        self.change(place, |holder| {
            if until < mem::replace(&mut holder.until, until) {
                holder.is_sooner.notify_one();
            }
        });
    }

    pub(super) fn forget(&self, place: &str) {
        // The task may be this one, and ends after the lock is unlocked.
        let forgotten = self.holders().remove(place);
        drop(forgotten);
    }

    /// Returns when the key is deleted; `None` if the holder was forgotten.
    fn until(&self, place: &str) -> Option<Moment> {
        Some(self.holders().get(place)?.until)
    }

    /// Rejects further tries, if the holder's time is up. Returns until when the deletion is repeated.
    fn end(&self, place: &str) -> Option<Moment> {
        let mut holders = self.holders();
        let holder = holders.get_mut(place).filter(|holder| holder.until.has_passed())?;
        holder.is_ending = true;
        Some(holder.until + holder.ttl)
    }

    /// Gives up the sessions of a key that can't be deleted.
    fn give_up_sessions(&self, place: &str) {
        self.change(place, |holder| {
            let late = holder.late.iter().map(|late| &late.session);
            holder.session.iter().chain(late).for_each(Session::give_up);
        });
    }

    fn change(&self, place: &str, change: impl FnOnce(&mut OwnHolder)) {
        if let Some(holder) = self.holders().get_mut(place) {
            change(holder);
        }
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<String, OwnHolder>> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}

/// A release. If it is dropped without an answer, the holder's task deletes the key.
struct Releasing<'a> {
    own: &'a OwnHolders,
    place: &'a str,
    is_answered: bool,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        match self.is_answered {
            true => self.own.forget(self.place),
            false => self.own.set_until(self.place, Moment::now()),
        }
    }
}

impl Etcd {
    /// Remembers a holder that tries, and returns its key if it seems to be its turn.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] while the key is being deleted.
    pub(super) fn begin_try(
        &self,
        keys: &Keys,
        holder: &Holder,
        ttl: Duration,
        asked: Moment,
    ) -> Result<Option<OwnKey>, BackendError> {
        let turn = self.own.begin_try(self, keys, holder, ttl, asked);
        turn.ok_or_else(|| self.unavailable("the lease has ended, and its lock is being deleted"))
    }

    /// Releases the lock, or leaves the queue.
    pub(super) async fn release_holder(
        &self,
        keys: &Keys,
        holder: &Holder,
    ) -> Result<bool, BackendError> {
        let place = keys.place(holder);
        let mut releasing = Releasing { own: &self.own, place: &place, is_answered: false };
        let released = self.delete_place(keys, &place).await?;
        releasing.is_answered = true;
        Ok(released)
    }

    /// Deletes a holder's key when its time is up.
    async fn end_in_time(self, keys: Keys, holder: Holder, is_sooner: Arc<Notify>) {
        let place = keys.place(&holder);
        let give_up_at = loop {
            let Some(until) = self.own.until(&place) else { return };
            tokio::select! {
                () = until.passed() => {}
                () = is_sooner.notified() => {}
            }
            if let Some(give_up_at) = self.own.end(&place) {
                break give_up_at;
            }
        };
        // In a box, because few tasks come so far.
        let delete = || Box::pin(self.delete_place(&keys, &place));
        if let Err(error) = retry_until(give_up_at, || self.address(), delete).await {
            let error = &error as &dyn Error;
            tracing::warn!(error, "a lock whose lease has ended could not be deleted");
            self.own.give_up_sessions(&place);
        }
        self.own.forget(&place);
    }
}
