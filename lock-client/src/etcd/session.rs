//! The sessions of a client: one lease of etcd for each ttl, which the client's locks of this ttl share.
//!
//! To make a lease and to revoke it are two durable writes. So a client has one for each ttl, as
//! `concurrency.Session` of etcd's own client is, and every renewal of a lock keeps it alive for all. A
//! lock that ends is deleted, because its session doesn't end with it (`own.rs`).
//!
//! An attempt without an answer may arrive when its holder is gone. It would acquire the lock for
//! nobody, for as long as the session lives. So each attempt names the *epoch* of its session: the
//! revision at which the session's own key was changed, or 0 while there is none. To change this key makes
//! all attempts fail that were sent before. The client does so before it releases such a lock, or tries
//! again as the same holder.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    client::Etcd,
    failure::Failure,
    keys,
    leases::Alive,
    messages::{Put, PutReply, Text},
    rounds::Rounds,
};
use crate::{backend::BackendError, clock::Moment};

/// A lock joins a session without a keep-alive of its own within this part of the ttl after the last one.
const JOINABLE_PART: u32 = 30;
/// The same, at most. The lock's deadline counts from that keep-alive.
const LONGEST_JOINABLE: Duration = Duration::from_millis(500);

/// The sessions of a client. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Sessions {
    /// The newest session for each ttl in seconds.
    newest: Arc<Mutex<HashMap<i64, Session>>>,
    /// Attempts at one time wait for the session that one of them begins.
    beginning: Arc<tokio::sync::Mutex<()>>,
}

impl Sessions {
    pub(super) fn find(&self, seconds: i64) -> Option<Session> {
        let newest = self.newest.lock().expect("nothing panics while it holds this");
        newest.get(&seconds).filter(|session| !session.is_given_up()).cloned()
    }

    fn insert(&self, session: &Session) {
        let mut newest = self.newest.lock().expect("nothing panics while it holds this");
        newest.insert(session.seconds(), session.clone());
    }
}

/// A session. Clones share it.
#[derive(Clone)]
pub(super) struct Session(Arc<Shared>);

struct Shared {
    lease: i64,
    seconds: i64,
    state: Mutex<State>,
    /// One request at a time keeps the session alive, and the others wait for it.
    keeping: tokio::sync::Mutex<()>,
    /// One request at a time begins an epoch.
    cutting: tokio::sync::Mutex<()>,
    rounds: Rounds,
}

struct State {
    last: Option<Kept>,
    epoch: i64,
    is_given_up: bool,
}

/// A session that was kept alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) alive: Alive,
    /// A moment before the request was sent.
    pub(super) asked: Moment,
}

impl Session {
    fn new(alive: Alive, asked: Moment) -> Self {
        let last = Some(Kept { alive, asked });
        Self(Arc::new(Shared {
            lease: alive.id,
            seconds: alive.seconds,
            state: Mutex::new(State { last, epoch: 0, is_given_up: false }),
            keeping: tokio::sync::Mutex::default(),
            cutting: tokio::sync::Mutex::default(),
            rounds: Rounds::default(),
        }))
    }

    pub(super) fn lease(&self) -> i64 {
        self.0.lease
    }

    pub(super) fn seconds(&self) -> i64 {
        self.0.seconds
    }

    pub(super) fn rounds(&self) -> &Rounds {
        &self.0.rounds
    }

    pub(super) fn epoch(&self) -> i64 {
        self.state().epoch
    }

    /// Whether no lock may join the session, and nobody keeps it alive. Locks on it move to another one
    /// when they are renewed.
    pub(super) fn is_given_up(&self) -> bool {
        self.state().is_given_up
    }

    pub(super) fn give_up(&self) {
        self.state().is_given_up = true;
    }

    /// Makes the next lock keep the session alive. A leader was replaced, and its keep-alive may not count.
    pub(super) fn doubt(&self) {
        self.state().last = None;
    }

    /// Whether a lock may live by this session for so many seconds.
    pub(super) fn serves(&self, seconds: i64) -> bool {
        self.seconds() >= seconds && !self.is_given_up()
    }

    fn kept_since(&self, moment: Moment) -> Option<Kept> {
        self.state().last.filter(|kept| kept.asked >= moment)
    }

    /// How long after a keep-alive a lock may join without another.
    fn joinable_for(&self) -> Duration {
        let ttl = Duration::from_secs(self.seconds().unsigned_abs());
        (ttl / JOINABLE_PART).min(LONGEST_JOINABLE)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nothing panics while it holds this")
    }
}

impl Etcd {
    /// Returns a session for this ttl, which was kept alive just before a lock is asked for.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if etcd's shortest time is longer.
    pub(super) async fn joinable_session(
        &self,
        seconds: i64,
        asked: Moment,
    ) -> Result<(Session, Kept), BackendError> {
        let since = |session: &Session| asked.checked_sub(session.joinable_for()).unwrap_or(asked);
        if let Some(session) = self.sessions.find(seconds)
            && let Some(kept) = session.kept_since(since(&session))
        {
            return Ok((session, kept));
        }
        let _turn = self.sessions.beginning.lock().await;
        if let Some(session) = self.sessions.find(seconds)
            && let Some(kept) = self.keep(&session, since(&session)).await?
        {
            return Ok((session, kept));
        }
        // An id without an answer is never used: its lease ends by itself.
        let (id, asked) = (keys::shared_lease(), Moment::now());
        let granted = self.connection.grant(id, seconds..=seconds, seconds).await?;
        let alive = granted.ok_or(Failure::LeaseExists)?;
        let session = Session::new(alive, asked);
        self.sessions.insert(&session);
        Ok((session, Kept { alive, asked }))
    }

    /// Keeps a session alive, unless that was asked for since a moment. Returns `None` if it has ended, or
    /// was given up.
    pub(super) async fn keep(
        &self,
        session: &Session,
        since: Moment,
    ) -> Result<Option<Kept>, BackendError> {
        let _turn = session.0.keeping.lock().await;
        if session.is_given_up() {
            return Ok(None);
        }
        if let Some(kept) = session.kept_since(since) {
            return Ok(Some(kept));
        }
        let asked = Moment::now();
        let alive = self.connection.keep_alive(session.lease()).await?;
        let kept = alive.map(|alive| Kept { alive, asked });
        session.state().last = kept;
        if kept.is_none() {
            session.give_up();
        }
        Ok(kept)
    }

    /// Makes all attempts on a session fail that were sent in this epoch and have not arrived.
    pub(super) async fn begin_epoch_after(
        &self,
        session: &Session,
        epoch: i64,
    ) -> Result<(), BackendError> {
        let _turn = session.0.cutting.lock().await;
        if session.epoch() != epoch {
            // Another holder's request has done it.
            return Ok(());
        }
        let lease = session.lease();
        let put = Put { key: Text(keys::session_key(lease)), value: Text::default(), lease };
        match self.connection.call::<PutReply>("kv/put", &put).await {
            Ok(reply) => {
                session.state().epoch = reply.header.revision;
                Ok(())
            }
            // No attempt on it succeeds any more.
            Err(Failure::NoLease) => {
                session.give_up();
                Ok(())
            }
            Err(failure) => {
                // The epoch is not known. So no more locks join.
                if failure.leaves_it_under_way() {
                    session.give_up();
                }
                Err(failure.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_joins_shortly_after_a_keep_alive() {
        for (seconds, millis) in [(1, 33), (3, 100), (30, 500), (3_600, 500)] {
            let asked = Moment::now();
            let session = Session::new(Alive::granted(2, seconds), asked);
            assert_eq!(session.joinable_for().as_millis(), millis);
            assert!(session.kept_since(asked).is_some());
            assert!(session.kept_since(asked + Duration::from_nanos(1)).is_none());
            assert!(session.serves(seconds) && !session.serves(seconds + 1));
            session.doubt();
            assert!(session.kept_since(asked).is_none());
            session.give_up();
            assert!(!session.serves(seconds));
        }
    }
}
