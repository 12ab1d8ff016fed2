//! The sessions of a client: one lease of etcd for each ttl, which the client's locks of this ttl share.
//!
//! To make a lease and to revoke it are two durable writes. So a client has one for each ttl, as
//! `concurrency.Session` of etcd's own client is, and every renewal of a lock keeps it alive for all. A
//! lock that ends is deleted, because its session doesn't end with it (`own.rs`).
//!
//! A request to put a key that had no answer may arrive when its holder is gone. It would acquire the lock
//! for nobody, for as long as the session lives. So a key is put only as long as its session is not *sealed*,
//! which is shown by a key of the session's own. Before such a holder is released, or tries again, the client
//! seals the session: no key is put on it any more, and those that are there stay. Other locks go on living
//! by it, and new ones get a new session.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde::de::IgnoredAny;
use tokio::sync::OnceCell;

use super::{
    client::Etcd,
    failure::Failure,
    keys,
    leases::Alive,
    messages::{Header, Put, Text},
    rounds::Rounds,
};
use crate::{
    backend::{Backend, BackendError},
    clock::Moment,
};

/// A lock joins a session without a keep-alive of its own within this part of the ttl after the last one.
const JOINABLE_PART: u32 = 30;
/// The same, at most. The lock's deadline counts from that keep-alive.
const LONGEST_JOINABLE: Duration = Duration::from_millis(500);

/// A lock for a ttl may join a session without a keep-alive that was kept alive since this moment.
pub(super) fn just_before(asked: Moment, ttl: Duration) -> Moment {
    asked.checked_sub((ttl / JOINABLE_PART).min(LONGEST_JOINABLE)).unwrap_or(asked)
}

/// The sessions of a client. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Sessions {
    /// The newest session for each ttl in seconds.
    newest: Arc<Mutex<HashMap<i64, Session>>>,
    /// Attempts at one time wait for the session that one of them begins.
    beginning: Arc<tokio::sync::Mutex<()>>,
}

impl Sessions {
    /// Returns the session that locks may join.
    fn find(&self, seconds: i64) -> Option<Session> {
        let newest = self.newest.lock().expect("nothing panics while it holds this");
        newest.get(&seconds).filter(|session| session.state().is_open).cloned()
    }

    fn insert(&self, seconds: i64, session: &Session) {
        let mut newest = self.newest.lock().expect("nothing panics while it holds this");
        newest.insert(seconds, session.clone());
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
    /// Whether the session is known to be sealed. One request at a time seals it.
    sealed: OnceCell<()>,
    rounds: Rounds,
}

struct State {
    /// The last keep-alive, and a moment before it was sent.
    kept: Option<(Alive, Moment)>,
    /// Whether locks may join.
    is_open: bool,
    /// Whether nobody keeps it alive any more.
    is_given_up: bool,
}

/// A session that was just kept alive, so that a key may join it.
pub(super) struct Joined {
    pub(super) session: Session,
    /// A moment before the session got its full time.
    pub(super) asked: Moment,
    alive: Alive,
}

impl Joined {
    /// Checks that the keep-alive counts.
    pub(super) fn confirm(&self, later: Header, etcd: &Etcd) -> Result<(), BackendError> {
        let confirmed = self.alive.confirm(later, &etcd.address());
        // The next one must not rely on it.
        confirmed.inspect_err(|_| self.session.state().kept = None)
    }
}

impl Session {
    pub(super) fn new(alive: Alive, asked: Moment) -> Self {
        let state = State { kept: Some((alive, asked)), is_open: true, is_given_up: false };
        Self(Arc::new(Shared {
            lease: alive.id,
            seconds: alive.seconds,
            state: Mutex::new(state),
            keeping: tokio::sync::Mutex::default(),
            sealed: OnceCell::new(),
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

    /// Whether the client's locks share it. Otherwise, it ends with its lock.
    pub(super) fn is_shared(&self) -> bool {
        keys::is_shared(self.lease())
    }

    /// Lets no more locks join.
    pub(super) fn close(&self) {
        self.state().is_open = false;
    }

    /// Lets nobody keep the session alive. Its locks move to another one when they are renewed.
    pub(super) fn give_up(&self) {
        let mut state = self.state();
        (state.is_open, state.is_given_up) = (false, true);
    }

    /// Whether a lock may live by this session for so many seconds.
    pub(super) fn serves(&self, seconds: i64) -> bool {
        self.seconds() >= seconds && !self.state().is_given_up
    }

    /// Joins the session, if it was kept alive since a moment.
    fn join(&self, since: Moment) -> Option<Joined> {
        let (alive, asked) = self.state().kept.filter(|(_, asked)| *asked >= since)?;
        Some(Joined { session: self.clone(), asked, alive })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nothing panics while it holds this")
    }
}

impl Etcd {
    /// Joins the client's session for this key, which was kept alive since a moment. A new one lasts for
    /// one of these times, for this ttl.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if etcd's shortest time is longer.
    pub(super) async fn join(
        &self,
        key: i64,
        seconds: RangeInclusive<i64>,
        ttl: i64,
        since: Moment,
    ) -> Result<Joined, BackendError> {
        let joined = self.sessions.find(key).and_then(|session| session.join(since));
        if let Some(joined) = joined {
            return Ok(joined);
        }
        let _turn = self.sessions.beginning.lock().await;
        if let Some(session) = self.sessions.find(key)
            && let Some(joined) = self.keep(&session, since).await?
        {
            return Ok(joined);
        }
        let joined = self.begin_session(keys::shared_lease(), seconds, ttl).await?;
        self.sessions.insert(key, &joined.session);
        Ok(joined)
    }

    /// Begins a session for one lock, which another process may take over.
    pub(super) async fn begin_own_session(
        &self,
        seconds: RangeInclusive<i64>,
        ttl: i64,
    ) -> Result<Joined, BackendError> {
        self.begin_session(keys::own_lease(), seconds, ttl).await
    }

    /// Begins a session. An id without an answer is never used: its lease ends by itself.
    async fn begin_session(
        &self,
        id: i64,
        seconds: RangeInclusive<i64>,
        ttl: i64,
    ) -> Result<Joined, BackendError> {
        let asked = Moment::now();
        let granted = self.held.grant(id, seconds, ttl).await?;
        let alive = granted.ok_or(Failure::LeaseExists)?;
        Ok(Joined { session: Session::new(alive, asked), asked, alive })
    }

    /// Keeps a session alive, unless that was asked for since a moment. Returns `None` if it has ended, or
    /// was given up.
    pub(super) async fn keep(
        &self,
        session: &Session,
        since: Moment,
    ) -> Result<Option<Joined>, BackendError> {
        let _turn = session.0.keeping.lock().await;
        if session.state().is_given_up {
            return Ok(None);
        }
        if let Some(joined) = session.join(since) {
            return Ok(Some(joined));
        }
        let asked = Moment::now();
        let alive = self.held.keep_alive(session.lease()).await?;
        session.state().kept = alive.map(|alive| (alive, asked));
        if alive.is_none() {
            session.give_up();
        }
        Ok(session.join(asked))
    }

    /// Lets no key be put on a session any more. It may be repeated without an answer, because it always
    /// does the same.
    pub(super) async fn seal(&self, session: &Session) -> Result<(), BackendError> {
        session.close();
        let put = async || {
            let lease = session.lease();
            let put = Put { key: Text(keys::seal(lease)), value: Text::default(), lease };
            match self.held.call::<IgnoredAny>("kv/put", &put).await {
                // No key is put on a lease that has ended.
                Err(Failure::NoLease) => session.give_up(),
                reply => drop(reply?),
            }
            Ok(())
        };
        session.0.sealed.get_or_try_init(put).await.map(drop)
    }
}
