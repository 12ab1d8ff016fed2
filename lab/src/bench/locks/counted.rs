//! A lock service whose requests are counted.

use std::{collections::HashSet, sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use lock_client::{
    Order, Ttl,
    backend::{
        Attempt, Backend, BackendError, BackendFuture, HeldNames, Ownership, Status, Wakeups,
    },
};
use tokio::sync::watch;

/// The requests for the locks of some clients.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The attempts and the releases.
    pub(super) requests: u64,
    /// The holders whose last attempt found the lock held.
    rejected: HashSet<Holder>,
    subscribed: HashSet<Holder>,
    /// Those that were rejected once more after they had subscribed.
    waiting: HashSet<Holder>,
}

impl Tally {
    /// Whether so many holders wait, and so many of them for a notification.
    pub(super) fn all_wait(&self, waiters: usize, notified: usize) -> bool {
        self.rejected.len() >= waiters && self.waiting.len() >= notified
    }

    fn tried(&mut self, holder: &Holder, attempt: &Result<Attempt, BackendError>) {
        self.requests += 1;
        match attempt {
            Ok(Attempt::Busy(_)) => {
                self.rejected.insert(holder.clone());
                if self.subscribed.contains(holder) {
                    self.waiting.insert(holder.clone());
                }
            }
            Ok(Attempt::Granted { .. }) => self.forget(holder),
            Err(_) => {}
        }
    }

    fn forget(&mut self, holder: &Holder) {
        for holders in [&mut self.rejected, &mut self.subscribed, &mut self.waiting] {
            holders.remove(holder);
        }
    }
}

/// A lock service whose requests are counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) tally: watch::Sender<Tally>,
}

impl Backend for Counted {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            let attempt = self.backend.try_acquire(name, holder, ttl, order).await;
            self.tally.send_modify(|tally| tally.tried(holder, &attempt));
            attempt
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        self.backend.renew(name, ownership, ttl)
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        self.backend.reissue(name, ownership, above)
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        self.tally.send_modify(|tally| {
            tally.requests += 1;
            tally.forget(holder);
        });
        self.backend.release(name, holder, token)
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            let wakeups = self.backend.subscribe(name, holder, order).await?;
            self.tally.send_modify(|tally| {
                tally.subscribed.insert(holder.clone());
            });
            Ok(wakeups)
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        self.backend.status(name)
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        self.backend.held_names(prefix)
    }

    fn answer_timeout(&self) -> Duration {
        self.backend.answer_timeout()
    }

    fn address(&self) -> String {
        self.backend.address()
    }
}
