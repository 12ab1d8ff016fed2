//! The end of a lock: its key is deleted, by its holder, or by the client's task when its time is up.
//!
//! The task deletes three kinds of keys: of locks that nobody renews any more, of waiters that try no
//! more, and of holders whose release had no answer. It repeats each deletion until etcd answers. If
//! deletions that may have arrived have no answer for a ttl, the task gives the session up. The session
//! ends then, with the keys that are left on it, and the other locks move to a new one. A client has
//! one such task, as long as it has holders. It also makes lost connections again.

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
    holders::SWEEP_INTERVAL,
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
        // If this is dropped without an answer, and not repeated, the task takes over then, or at the
        // lease's own deadline if that is earlier.
        let until = Moment::now() + self.patience();
        self.own.change(place, |own| own.is_released = true);
        self.own.advance_deadline(place, until);
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

    /// Makes the connections that held locks keep, after a try that has acquired one.
    pub(super) async fn keep_connections_after_a_try(&self) -> Result<(), Failure> {
        let (renewals, releases) = (&self.renewals, &self.releases);
        // If one fails, the other one is made nevertheless. The first one takes the connection of the try.
        // It is that of releases: over it, a lock without the other one is given back.
        let (releases, renews) = tokio::join!(
            biased;
            releases.keep_after(&self.tries),
            renewals.keep_after(&self.tries)
        );
        renews.and(releases)
    }

    /// How long the caller of a release may repeat it before the task takes over.
    fn patience(&self) -> Duration {
        self.answer_timeout() * LONGEST_METHOD + LONGEST_REPETITION
    }

    /// Waits for the deletions that the task repeats, but not for long if etcd does not answer.
    pub(super) async fn wait_for_deletions(&self) {
        let _deleted_or_not = timeout(self.patience(), self.own.deleted()).await;
    }

    /// Deletes keys in time, and keeps connections. Ends when there are no holders.
    pub(super) async fn delete_in_time(self) {
        // A deletion that hangs delays no connection.
        tokio::select! {
            () = self.sweep_in_time() => {}
            () = self.keep_connections() => {}
        }
    }

    /// Makes lost connections again, as long as there are holders.
    async fn keep_connections(&self) {
        let mut pauses = pauses(LONGEST_PAUSE);
        loop {
            self.tries.http().lost.notified().await;
            while !self.own.table().is_empty() {
                let (renews, releases) = tokio::join!(self.renewals.keep(), self.releases.keep());
                if renews.and(releases).is_ok() {
                    pauses = self::pauses(LONGEST_PAUSE);
                    break;
                }
                sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
            // A load balancer may close each connection that it takes.
            sleep(LONGEST_PAUSE).await;
        }
    }

    async fn sweep_in_time(&self) {
        let mut pauses = pauses(LONGEST_PAUSE);
        let mut pause = SWEEP_INTERVAL;
        while !self.own.keeper.end_if(|| self.own.table().is_empty()) {
            // A caller that waits for the deletions shortens the pause.
            let _ = timeout(pause, self.own.hurried.notified()).await;
            pause = match self.sweep().await {
                true => {
                    pauses = self::pauses(LONGEST_PAUSE);
                    SWEEP_INTERVAL
                }
                false => pauses.next().unwrap_or(LONGEST_PAUSE),
            };
        }
    }

    /// Deletes the keys of holders whose time is up. Returns whether etcd has answered.
    async fn sweep(&self) -> bool {
        let (ended, mut is_answered) = (self.own.ended(), true);
        // 1. No request of theirs may make a key later. etcd may have no space to prevent that.
        for session in ended.iter().filter_map(|(_, own)| own.late.as_ref()) {
            is_answered = self.within(1, self.seal(session)).await.is_ok();
            if !is_answered {
                break;
            }
        }
        // 2. Delete the keys, in any case.
        for ended in ended.chunks(DELETIONS) {
            let success = ended.iter().map(|(place, _)| delete(place)).collect();
            // Nobody waits for it, so that a slow answer is waited for.
            let releases =
                self.releases.with_answer_timeout(self.answer_timeout() * LONGEST_METHOD);
            let deleted = releases.transact(&Txn { success, ..Txn::default() }).await;
            is_answered &= deleted.is_ok();
            for (place, own) in ended {
                match &deleted {
                    Ok(_) if own.late.as_ref().is_none_or(|it| it.is_sealed()) => {
                        self.own.forget(place);
                    }
                    // A request may make it again. It has had an answer just now.
                    Ok(_) => self.own.change(place, |own| own.deadline = Moment::now()),
                    Err(failure) => give_up_after_a_ttl(own, failure),
                }
            }
        }
        is_answered
    }
}

/// Lets the sessions of a lock end if its deletions had no answer for a ttl. A deletion that was not sent
/// does not count: the other locks of the session are healthy. The lock may live by another session, if
/// the answer to a move was lost. So the deletion is repeated.
fn give_up_after_a_ttl(own: &OwnKey, failure: &Failure) {
    if let Failure::Other(error) = failure
        && failure.leaves_it_under_way()
        && (own.deadline + own.ttl).has_passed()
    {
        for session in own.session.iter().chain(&own.late).filter(|session| session.serves(0)) {
            let error = error as &dyn Error;
            tracing::warn!(error, "a lock whose lease has ended could not be deleted");
            session.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::session::{Alive, Session};

    #[test]
    fn deletion_that_was_not_sent_gives_no_session_up() {
        let session = Session::new(1, Alive::granted(2, Moment::now()));
        let own = OwnKey::ended(session.clone());
        let unavailable = || BackendError::Unavailable("no answer".into());
        for failure in [Failure::NotSent(unavailable()), Failure::NoSpace(unavailable())] {
            give_up_after_a_ttl(&own, &failure);
            assert!(session.serves(0), "{failure:?}");
        }
        // The control.
        give_up_after_a_ttl(&own, &Failure::Other(unavailable()));
        assert!(!session.serves(0));
    }
}
