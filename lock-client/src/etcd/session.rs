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
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    client::Etcd,
    failure::Failure,
    keys,
    leases::Alive,
    messages::{Header, Put, PutReply, Text},
    own::Late,
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
    fn find(&self, seconds: i64) -> Option<Session> {
        let newest = self.newest.lock().expect("nothing panics while it holds this");
        newest.get(&seconds).filter(|session| !session.is_given_up()).cloned()
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
    /// One request at a time begins an epoch.
    cutting: tokio::sync::Mutex<()>,
    rounds: Rounds,
}

struct State {
    /// The last keep-alive, and a moment before it was sent.
    kept: Option<(Alive, Moment)>,
    epoch: i64,
    is_given_up: bool,
}

/// A session that was just kept alive, so that a key may join it.
pub(super) struct Joined {
    pub(super) session: Session,
    pub(super) epoch: i64,
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

    /// A request to put a key on the session.
    pub(super) fn late(&self) -> Late {
        Late { session: self.session.clone(), epoch: self.epoch }
    }

    /// Another epoch has begun, because a request of another holder had no answer.
    pub(super) fn leave_epoch(&self) {
        if self.session.epoch() == self.epoch {
            // The present one is not known.
            self.session.give_up();
        }
    }
}

impl Session {
    fn new(alive: Alive, asked: Moment) -> Self {
        let kept = Some((alive, asked));
        Self(Arc::new(Shared {
            lease: alive.id,
            seconds: alive.seconds,
            state: Mutex::new(State { kept, epoch: 0, is_given_up: false }),
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

    /// Whether a lock may live by this session for so many seconds.
    pub(super) fn serves(&self, seconds: i64) -> bool {
        self.seconds() >= seconds && !self.is_given_up()
    }

    /// Joins the session, if it was kept alive since a moment.
    fn join(&self, since: Moment) -> Option<Joined> {
        let state = self.state();
        let (alive, asked) = state.kept.filter(|(_, asked)| *asked >= since)?;
        Some(Joined { session: self.clone(), epoch: state.epoch, asked, alive })
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

    /// Begins a session. An id without an answer is never used: its lease ends by itself.
    pub(super) async fn begin_session(
        &self,
        id: i64,
        seconds: RangeInclusive<i64>,
        ttl: i64,
    ) -> Result<Joined, BackendError> {
        let asked = Moment::now();
        let granted = self.connection.grant(id, seconds, ttl).await?;
        let alive = granted.ok_or(Failure::LeaseExists)?;
        Ok(Joined { session: Session::new(alive, asked), epoch: 0, asked, alive })
    }

    /// Keeps a session alive, unless that was asked for since a moment. Returns `None` if it has ended, or
    /// was given up.
    pub(super) async fn keep(
        &self,
        session: &Session,
        since: Moment,
    ) -> Result<Option<Joined>, BackendError> {
        let _turn = session.0.keeping.lock().await;
        if session.is_given_up() {
            return Ok(None);
        }
        if let Some(joined) = session.join(since) {
            return Ok(Some(joined));
        }
        let asked = Moment::now();
        let alive = self.connection.keep_alive(session.lease()).await?;
        session.state().kept = alive.map(|alive| (alive, asked));
        if alive.is_none() {
            session.give_up();
        }
        Ok(session.join(asked))
    }

    /// Lets none of these requests to put a key succeed later.
    pub(super) async fn cut_off(&self, late: &[Late]) -> Result<(), BackendError> {
        for Late { session, epoch } in late {
            self.begin_epoch_after(session, *epoch).await?;
        }
        Ok(())
    }

    /// Makes all attempts on a session fail that were sent in this epoch and have not arrived.
    async fn begin_epoch_after(&self, session: &Session, epoch: i64) -> Result<(), BackendError> {
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
