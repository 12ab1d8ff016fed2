//! The end of a lock: its key is deleted, by its holder, or by the client's task when its time is up.
//!
//! The task deletes a lock that is not renewed any more, a waiter that tries no more, and the key of a
//! holder whose release had no answer. It repeats that until it is answered. Without an answer for a
//! ttl, it gives the session up, which ends with what is left on it. Other locks move to a new session.
//! A client has one such task, as long as it has holders. It also keeps connections for them.

use std::{error::Error, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    client::{Etcd, LONGEST_METHOD},
    failure::Failure,
    keys::{self, Keys},
    messages::{Txn, delete},
    own_keys::OwnKey,
    view::{Part, View},
};
use crate::{
    backend::{Backend, BackendError},
    clock::Moment,
    retry::pauses,
};

/// How many keys a transaction deletes. `--max-txn-ops` is 128 by default.
const DELETIONS: usize = 100;
/// The longest pause before a deletion without an answer is repeated, or a connection is made
/// again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a caller may pause before it repeats a release without an answer.
const LONGEST_REPETITION: Duration = Duration::from_secs(2);

impl Etcd {
    /// Releases the lock, or leaves the queue. Returns whether the lock was held.
    pub(super) async fn release_holder(
        &self,
        keys: &Keys,
        place: &str,
    ) -> Result<bool, BackendError> {
        // If this is dropped without an answer, and not repeated, the task takes over.
        self.own.release_until(place, Moment::now() + self.patience());
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
        let reply = self.releases.transact(&Txn { success, ..Txn::default() }).await?;
        let was_there = reply.deleted() > 0;
        let view = View::parse(reply).map_err(BackendError::after_a_change)?;
        let owned = view.owner().filter(|owner| owner.key.0 == place);
        // 3. A request that has made the key does not arrive later.
        if !was_there {
            sealed.map_err(BackendError::after_a_change)?;
        }
        self.own.forget(place);
        // 4. A session that no other lock shares ends with its lock, now or with its time.
        if let Some(lease) = owned.map(|owner| owner.lease).filter(|&lease| !keys::is_shared(lease))
        {
            let _ended_or_not = self.releases.revoke(lease).await;
        }
        Ok(owned.is_some())
    }

    /// Makes the connections that held locks keep.
    pub(super) async fn keep_connections(&self) -> Result<(), Failure> {
        tokio::try_join!(self.renewals.keep(), self.releases.keep()).map(drop)
    }

    /// How long a release may take, and be repeated after that.
    fn patience(&self) -> Duration {
        self.answer_timeout() * LONGEST_METHOD + LONGEST_REPETITION
    }

    /// Waits for the deletions that the task repeats, but not for long if etcd does not answer.
    pub(super) async fn wait_for_deletions(&self) {
        let _deleted_or_not = timeout(self.patience(), self.own.deleted()).await;
    }

    /// Deletes keys in time, and keeps connections. Ends when there are no holders.
    pub(super) async fn delete_in_time(self) {
        let mut pauses = pauses(LONGEST_PAUSE);
        let (mut repeats_in, mut reconnects_at) = (None, Moment::now());
        while let Some(next) = self.own.looks_at() {
            // A load balancer may close each connection that it takes.
            let http = self.tries.http();
            let lost = async move {
                http.lost.notified().await;
                reconnects_at.passed().await;
            };
            match repeats_in {
                Some(pause) => sleep(pause).await,
                None => tokio::select! {
                    () = next.passed() => http.close_spare(),
                    () = self.own.is_sooner.notified() => {}
                    () = lost => {}
                },
            }
            if self.own.is_empty() {
                continue;
            }
            let (kept, is_swept) = tokio::join!(self.keep_connections(), self.sweep());
            (repeats_in, reconnects_at) = (None, Moment::now() + LONGEST_PAUSE);
            if kept.is_ok() && is_swept {
                pauses = self::pauses(LONGEST_PAUSE);
            } else {
                repeats_in = pauses.next();
            }
        }
    }

    /// Deletes the keys of holders whose time is up. Returns whether none is left.
    async fn sweep(&self) -> bool {
        let (ended, mut is_done) = (self.own.ended(), true);
        // 1. No request of theirs may make a key later. etcd may have no space to prevent that.
        for session in ended.iter().filter_map(|(_, own)| own.late.as_ref()) {
            is_done = self.within(1, self.seal(session)).await.is_ok();
            if !is_done {
                break;
            }
        }
        // 2. Delete the keys, in any case.
        for ended in ended.chunks(DELETIONS) {
            let success = ended.iter().map(|(place, _)| delete(place)).collect();
            let deleted = self.releases.transact(&Txn { success, ..Txn::default() }).await;
            let deleted = deleted.map_err(BackendError::from);
            is_done &= deleted.is_ok();
            for (place, own) in ended {
                match &deleted {
                    Ok(_) if own.late.as_ref().is_none_or(|it| it.is_sealed()) => {
                        self.own.forget(place);
                    }
                    // A request may make it again. It has had an answer just now.
                    Ok(_) => self.own.change(place, |own| own.deadline = Moment::now()),
                    Err(error) => give_up_after_a_ttl(own, error),
                }
            }
        }
        is_done
    }
}

/// Lets the sessions of a lock end that could not be deleted for a ttl. It may live by another one, if
/// the answer to a move was lost. So the deletion is repeated.
fn give_up_after_a_ttl(own: &OwnKey, error: &BackendError) {
    if (own.deadline + own.ttl).has_passed() {
        for session in own.session.iter().chain(&own.late) {
            if session.serves(0) {
                let error = error as &dyn Error;
                tracing::warn!(error, "a lock whose lease has ended could not be deleted");
                session.give_up();
            }
        }
    }
}
