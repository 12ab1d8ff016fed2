//! What a client keeps of its own holders, where its locks share a session.
//!
//! Such a session does not end with a lock. So a task deletes the lock of each holder whose time has passed,
//! or its place in the queue, again and again until that is answered.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{clock::Moment, keeper::Keeper, mutex::Locked};

/// How often the task looks.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

pub(crate) trait Kept: Clone {
    /// When its lock or its place is deleted, unless it tries again or renews before.
    fn until(&self) -> Moment;

    /// Whether it may change: it does not any more once it is being deleted.
    fn is_live(&self) -> bool {
        !self.until().has_passed()
    }
}

pub(crate) struct Holders<K, H> {
    table: Mutex<HashMap<K, H>>,
    /// The task that deletes. It is started when a holder is in the table.
    pub(crate) keeper: Keeper,
    /// Notified when somebody waits for the deletions.
    pub(crate) hurried: Notify,
    /// Notified when a holder is forgotten.
    forgotten: Notify,
}

impl<K, H> Default for Holders<K, H> {
    fn default() -> Self {
        let (table, keeper, hurried, forgotten) = Default::default();
        Self { table, keeper, hurried, forgotten }
    }
}

impl<K: Clone + Eq + Hash, H: Kept> Holders<K, H> {
    pub(crate) fn table(&self) -> MutexGuard<'_, HashMap<K, H>> {
        self.table.locked()
    }

    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<H>
    where
        K: Borrow<Q>,
    {
        self.table().get(key).cloned()
    }

    /// Changes what is kept of a live holder; `None` if it is not live.
    pub(crate) fn change_live<Q: Eq + Hash + ?Sized, T>(
        &self,
        key: &Q,
        change: impl FnOnce(&mut H) -> T,
    ) -> Option<T>
    where
        K: Borrow<Q>,
    {
        self.table().get_mut(key).filter(|own| own.is_live()).map(change)
    }

    /// Forgets the holders that are named, such as those whose locks go on without this client.
    pub(crate) fn forget_where(&self, is_named: impl Fn(&K) -> bool) {
        self.table().retain(|key, _| !is_named(key));
        self.forgotten.notify_waiters();
    }

    pub(crate) fn forget_if<Q: Eq + Hash + ?Sized>(
        &self,
        key: &Q,
        is_meant: impl FnOnce(&H) -> bool,
    ) where
        K: Borrow<Q>,
    {
        let mut table = self.table();
        if table.get(key).is_some_and(is_meant) {
            table.remove(key);
            self.forgotten.notify_waiters();
        }
    }

    pub(crate) fn ended(&self) -> Vec<(K, H)> {
        let table = self.table();
        let ended = table.iter().filter(|(_, own)| own.until().has_passed());
        ended.map(|(key, own)| (key.clone(), own.clone())).collect()
    }

    /// Waits until the holders whose time has passed are forgotten.
    pub(crate) async fn until_none_has_ended(&self) {
        self.hurried.notify_one();
        loop {
            let forgotten = self.forgotten.notified();
            if !self.table().values().any(|own| own.until().has_passed()) {
                return;
            }
            forgotten.await;
        }
    }
}
