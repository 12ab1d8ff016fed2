//! The end of a lock: its key is deleted, by its holder, or by the client's task when its time is up.
//!
//! A session lives as long as any lock of it is renewed. So a lock that is not renewed any more, a
//! waiter that tries no more, and a holder whose release had no answer are deleted, again and again
//! until that is answered. If there is no answer for a ttl, the session is given up: nobody keeps
//! it alive, and it ends with what is left on it. Its other locks move to a new session.
//!
//! A client has one such task, as long as it has holders. It also reserves a connection for them.

use std::{error::Error, time::Duration};

use tokio::time::sleep;

use super::{
    client::{Etcd, LONGEST_METHOD},
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
        let patience = self.answer_timeout() * LONGEST_METHOD + LONGEST_REPETITION;
        self.own.delete_at(place, Moment::now() + patience);
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
        self.own.forget(place);
        // 4. A session that no other lock shares ends with its lock, now or with its time.
        if let Some(lease) = owned.map(|owner| owner.lease).filter(|&lease| !keys::is_shared(lease))
        {
            let _ended_or_not = self.held.revoke(lease).await;
        }
        Ok(owned.is_some())
    }

    /// Deletes keys in time, and reserves a connection. Ends when there are no holders.
    pub(super) async fn delete_in_time(self) {
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
            if self.own.is_empty() {
                continue;
            }
            let (reserved, is_swept) = tokio::join!(self.connection.reserve(), self.sweep());
            repeats_in = None;
            if reserved.is_ok() && is_swept {
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
                        |own: &OwnKey| own.late.as_ref().is_none_or(|it| it.is_sealed());
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
