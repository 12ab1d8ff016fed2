//! What a client knows of its own holders, and the task that deletes the locks whose leases have ended.
//!
//! A session lives as long as any lock of it is renewed. So a lock that is not renewed any more, or whose
//! release had no answer, is deleted at the end of its ttl, again and again until that is answered. If
//! there is no answer for another ttl, the session is given up: nobody keeps it alive, and it ends with
//! what is left on it. Its other locks move to a new session.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::{
    client::Etcd,
    messages::{Delete, KeyValue, Operation, Text, Txn},
    session::Session,
};
use crate::{backend::BackendError, clock::Moment, retry::pauses};

/// How many keys one transaction deletes. `--max-txn-ops` is 128 by default.
const KEYS_IN_A_TRANSACTION: usize = 100;
/// The longest pause before a lock is deleted again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

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

/// A request to put a holder's key that may arrive later.
#[derive(Clone)]
pub(super) enum Late {
    /// On a session, in this epoch.
    Session(Session, i64),
    /// On a lease of the holder's own.
    Lease(i64),
}

impl Late {
    pub(super) fn lease(&self) -> i64 {
        match self {
            Self::Session(session, _) => session.lease(),
            Self::Lease(lease) => *lease,
        }
    }
}

/// The holders of a client, by their keys. Clones share them.
#[derive(Clone, Default)]
pub(super) struct OwnHolders(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// A holder ends before the task looks again.
    is_sooner: Notify,
}

#[derive(Default)]
struct Table {
    holders: HashMap<String, OwnHolder>,
    /// When the task looks again; `None` if there is no task.
    next_look: Option<Moment>,
}

struct OwnHolder {
    /// The own key, since a watch has shown that the owner's is gone.
    turn: Option<OwnKey>,
    /// The session by which the key lives.
    session: Option<Session>,
    late: Vec<Late>,
    /// When the key is deleted, unless the lock is renewed before.
    until: Moment,
    ttl: Duration,
    is_ending: bool,
}

impl OwnHolders {
    /// Remembers a holder that tries. If a watch has shown that it is the holder's turn, this returns
    /// the holder's key, once. It is an error while the key is being deleted.
    pub(super) fn begin_try(
        &self,
        place: &str,
        ttl: Duration,
        until: Moment,
    ) -> Result<Option<OwnKey>, ()> {
        let mut table = self.table();
        let new =
            || OwnHolder { turn: None, session: None, late: vec![], until, ttl, is_ending: false };
        let holder = table.holders.entry(place.to_owned()).or_insert_with(new);
        if holder.is_ending {
            return Err(());
        }
        (holder.until, holder.ttl) = (until, ttl);
        let turn = holder.turn.take();
        self.look_by(&table, until);
        Ok(turn)
    }

    /// Remembers that it seems to be the turn of a holder.
    pub(super) fn set_turn(&self, place: &str, own: OwnKey) {
        self.change(place, |holder| holder.turn = Some(own));
    }

    /// Remembers a request to put the key, before it is sent.
    pub(super) fn sends(&self, place: &str, late: Late) {
        self.change(place, |holder| holder.late.push(late));
    }

    /// Forgets one request to put the key on this lease, because it was answered.
    pub(super) fn answered(&self, place: &str, lease: i64) {
        self.change(place, |holder| {
            let answered = holder.late.iter().position(|late| late.lease() == lease);
            answered.map(|answered| holder.late.remove(answered));
        });
    }

    /// Returns the requests to put the key that may arrive later.
    pub(super) fn late(&self, place: &str) -> Vec<Late> {
        self.table().holders.get(place).map(|holder| holder.late.clone()).unwrap_or_default()
    }

    /// Returns the session by which a lock of this client lives.
    pub(super) fn session(&self, place: &str) -> Option<Session> {
        self.table().holders.get(place)?.session.clone()
    }

    /// Remembers the session by which the key lives.
    pub(super) fn set_session(&self, place: &str, session: &Session) {
        self.change(place, |holder| holder.session = Some(session.clone()));
    }

    /// Remembers that a lock was renewed.
    pub(super) fn set_until(&self, place: &str, until: Moment) {
        self.change(place, |holder| holder.until = until);
        self.look_by(&self.table(), until);
    }

    /// Begins a release.
    pub(super) fn release<'a>(&'a self, place: &'a str) -> Releasing<'a> {
        Releasing { own: self, place, is_answered: false }
    }

    /// Lets the task delete the key.
    fn end_now(&self, place: &str) {
        let now = Moment::now();
        self.change(place, |holder| holder.until = holder.until.min(now));
        self.look_by(&self.table(), now);
    }

    pub(super) fn forget(&self, place: &str) {
        self.table().holders.remove(place);
    }

    fn change(&self, place: &str, change: impl FnOnce(&mut OwnHolder)) {
        if let Some(holder) = self.table().holders.get_mut(place) {
            change(holder);
        }
    }

    /// Wakes the task if it looks again only later.
    fn look_by(&self, table: &Table, until: Moment) {
        if table.next_look.is_some_and(|next| until < next) {
            self.0.is_sooner.notify_one();
        }
    }

    /// Decides when the task looks again. Returns `None` if there is nothing left to do.
    fn plan(&self) -> Option<Moment> {
        let mut table = self.table();
        table.next_look = table.holders.values().map(|holder| holder.until).min();
        table.next_look
    }

    /// Returns the keys to delete, with their requests that may arrive later. Nobody renews them any more.
    fn take_ended(&self) -> Vec<(String, Vec<Late>)> {
        let mut table = self.table();
        let ended = table.holders.iter_mut().filter(|(_, holder)| holder.until.has_passed());
        let ended = ended.map(|(place, holder)| {
            holder.is_ending = true;
            (place.clone(), holder.late.clone())
        });
        ended.collect()
    }

    /// Gives up the sessions of keys that could not be deleted for a ttl.
    fn give_up_overdue(&self, places: &[(String, Vec<Late>)]) {
        let mut table = self.table();
        for (place, late) in places {
            let overdue = table
                .holders
                .get(place)
                .filter(|holder| (holder.until + holder.ttl).has_passed())
                .map(|holder| holder.session.clone());
            let Some(session) = overdue else { continue };
            let on_sessions = late.iter().filter_map(|late| match late {
                Late::Session(session, _) => Some(session.clone()),
                Late::Lease(_) => None,
            });
            session.into_iter().chain(on_sessions).for_each(|session| session.give_up());
            table.holders.remove(place);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().expect("nothing panics while it holds this")
    }
}

/// The task that deletes. If its runtime ends, the next try starts another.
struct Running(Option<OwnHolders>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(own) = &self.0 {
            own.table().next_look = None;
        }
    }
}

/// A release. If it is dropped without an answer, the task deletes the key.
pub(super) struct Releasing<'a> {
    own: &'a OwnHolders,
    place: &'a str,
    pub(super) is_answered: bool,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        match self.is_answered {
            true => self.own.forget(self.place),
            false => self.own.end_now(self.place),
        }
    }
}

impl Etcd {
    /// Starts the task that deletes the keys of holders whose time is up, unless it runs.
    pub(super) fn delete_ended(&self) {
        let mut table = self.own.table();
        if table.next_look.is_none() {
            table.next_look = Some(Moment::now());
            let running = Running(Some(self.own.clone()));
            drop(table);
            tokio::spawn(self.clone().follow_own_holders(running));
        }
    }

    async fn follow_own_holders(self, mut running: Running) {
        let mut pauses = pauses(LONGEST_PAUSE);
        while let Some(next) = self.own.plan() {
            tokio::select! {
                () = next.passed() => {}
                () = self.own.0.is_sooner.notified() => continue,
            }
            let ended = self.own.take_ended();
            let mut failed = false;
            for places in ended.chunks(KEYS_IN_A_TRANSACTION) {
                match self.delete(places).await {
                    Ok(()) => places.iter().for_each(|(place, _)| self.own.forget(place)),
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            locks = places.len(),
                            "locks whose leases have ended could not be deleted"
                        );
                        self.own.give_up_overdue(places);
                        failed = true;
                    }
                }
            }
            if failed {
                sleep(pauses.next().expect("the pauses never end")).await;
            } else {
                pauses = self::pauses(LONGEST_PAUSE);
            }
        }
        // Another task may have been started since the last look.
        running.0 = None;
    }

    /// Deletes keys, and lets no request arrive later that puts them.
    async fn delete(&self, places: &[(String, Vec<Late>)]) -> Result<(), BackendError> {
        for (_, late) in places {
            self.cut_off(late).await?;
        }
        let delete = |place: &String| Operation::Delete(Delete { key: Text(place.clone()) });
        let success = places.iter().map(|(place, _)| delete(place)).collect();
        self.transact(&Txn { success, ..Txn::default() }).await.map(drop)
    }

    /// Lets none of these requests succeed later.
    pub(super) async fn cut_off(&self, late: &[Late]) -> Result<(), BackendError> {
        for late in late {
            match late {
                Late::Session(session, epoch) => self.begin_epoch_after(session, *epoch).await?,
                Late::Lease(lease) => self.connection.revoke(*lease).await?,
            }
        }
        Ok(())
    }
}
