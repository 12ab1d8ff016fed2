//! The sessions of a client: one lease of etcd for each ttl, which the client's locks of this ttl
//! share.
//!
//! To make a lease and to revoke it are two durable writes. So a client has one for each ttl, as
//! `concurrency.Session` of etcd's own client is, and every renewal of a lock keeps it alive for
//! all. A lock that ends is deleted, because its session doesn't end with it (`release.rs`).
//!
//! A request to put a key that had no answer may arrive when its holder is gone. It would acquire
//! the lock for nobody, for as long as the session lives. So a key is put only as long as its
//! session is not *sealed*, which is shown by a key of the session's own. Before such a holder is
//! released, or tries again, the client seals the session: no key is put on it any more, and those
//! that are there stay. Other locks go on living by it, and new ones get a new session.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::OnceCell;

use super::{
    client::Etcd,
    connection::{Connection, Purpose},
    failure::Failure,
    keys,
    messages::{Header, LeaseReply, Streamed, bytes},
    renewal::Rounds,
};
use crate::{backend::BackendError, clock::Moment, mutex::Locked, ttl::Ttl};

/// A lease that was just kept alive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alive {
    pub(super) seconds: i64,
    /// A moment before it got its full time.
    pub(super) asked: Moment,
    /// The term of the leader; `None` if it is new. An elected leader gives every lease its full
    /// time, so that a new lease depends on no term.
    term: Option<u64>,
}

/// The sessions of a client. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Sessions {
    /// The newest session for each ttl in seconds.
    newest: Arc<Mutex<HashMap<i64, Arc<Session>>>>,
    /// Requests at one time wait for the session that one of them begins.
    beginning: Arc<Turns>,
}

/// One request at a time has the turn, for each purpose.
type Turns = [tokio::sync::Mutex<()>; Purpose::NUMBER];

impl Sessions {
    fn find(&self, seconds: i64) -> Option<Arc<Session>> {
        self.newest.locked().get(&seconds).filter(|session| session.state.locked().is_open).cloned()
    }

    /// Lets locks join a session, and forgets those that have ended.
    fn add(&self, seconds: i64, session: Arc<Session>) {
        let mut newest = self.newest.locked();
        newest.retain(|_, session| !session.has_ended());
        newest.insert(seconds, session);
    }
}

pub(super) struct Session {
    pub(super) lease: i64,
    pub(super) seconds: i64,
    state: Mutex<State>,
    /// One request at a time keeps the session alive, and the others for its purpose wait for it.
    keeping: Turns,
    /// Whether the session is known to be sealed. One request at a time seals it.
    sealed: OnceCell<()>,
    pub(super) rounds: Rounds,
}

struct State {
    /// The last keep-alive.
    kept: Option<Alive>,
    is_open: bool,
    /// Whether nobody keeps it alive any more.
    is_given_up: bool,
}

#[cfg(test)]
impl Alive {
    pub(super) fn granted(seconds: i64, asked: Moment) -> Self {
        Self { seconds, asked, term: None }
    }
}

/// A session that was just kept alive, so that a key may join it.
pub(super) struct Joined {
    pub(super) session: Arc<Session>,
    pub(super) alive: Alive,
}

impl Joined {
    /// Checks that the leader that has kept the session alive still was the leader when it answered
    /// a later request. A leader that was replaced, and does not know it yet, renews nothing.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] after an election.
    pub(super) fn confirm(&self, later: Header, etcd: &Etcd) -> Result<(), BackendError> {
        if self.alive.term.is_none_or(|term| term == later.raft_term) {
            return Ok(());
        }
        // The next one must not rely on it.
        self.session.state.locked().kept = None;
        Err(etcd.unavailable("a new leader was elected meanwhile"))
    }
}

impl Session {
    pub(super) fn new(lease: i64, alive: Alive) -> Arc<Self> {
        let state = State { kept: Some(alive), is_open: true, is_given_up: false };
        let (keeping, sealed, rounds) = Default::default();
        let (seconds, state) = (alive.seconds, Mutex::new(state));
        Arc::new(Self { lease, seconds, state, keeping, sealed, rounds })
    }

    /// Whether the client's locks share it. Otherwise, it ends with its lock.
    pub(super) fn is_shared(&self) -> bool {
        keys::is_shared(self.lease)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.initialized()
    }

    pub(super) fn close(&self) {
        self.state.locked().is_open = false;
    }

    /// Lets nobody keep the session alive. Its locks move to another one when they are renewed.
    pub(super) fn give_up(&self) {
        let mut state = self.state.locked();
        (state.is_open, state.is_given_up) = (false, true);
    }

    /// Whether a lock may live by this session for so many seconds.
    pub(super) fn serves(&self, seconds: i64) -> bool {
        self.seconds >= seconds && !self.state.locked().is_given_up
    }

    /// Whether it was not kept alive for its time.
    fn has_ended(&self) -> bool {
        let time = Duration::from_secs(self.seconds.unsigned_abs());
        self.state.locked().kept.is_some_and(|alive| (alive.asked + time).has_passed())
    }

    /// Joins the session, if it was kept alive since a moment.
    fn join(self: &Arc<Self>, since: Moment) -> Option<Joined> {
        let alive = self.state.locked().kept.filter(|alive| alive.asked >= since)?;
        Some(Joined { session: self.clone(), alive })
    }
}

impl Etcd {
    /// Joins the client's session for the shortest of these times, which was kept alive since a
    /// moment. A new one lasts for one of these times, and is begun over this connection. The last time
    /// is the ttl.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if etcd's shortest time is longer.
    pub(super) async fn join(
        &self,
        connection: &Connection,
        seconds: RangeInclusive<i64>,
        since: Moment,
    ) -> Result<Joined, BackendError> {
        let key = *seconds.start();
        let joined = self.sessions.find(key).and_then(|session| session.join(since));
        if let Some(joined) = joined {
            return Ok(joined);
        }
        let _turn = self.sessions.beginning[connection.purpose as usize].lock().await;
        if let Some(session) = self.sessions.find(key)
            && let Some(joined) = self.keep_alive(connection, &session, since).await?
        {
            return Ok(joined);
        }
        let joined = begin_session(connection, keys::shared_lease(), seconds).await?;
        self.sessions.add(key, joined.session.clone());
        Ok(joined)
    }

    /// Keeps a session alive, unless that was asked for since a moment. Returns `None` if it has
    /// ended, or was given up.
    pub(super) async fn keep_alive(
        &self,
        connection: &Connection,
        session: &Arc<Session>,
        since: Moment,
    ) -> Result<Option<Joined>, BackendError> {
        let _turn = session.keeping[connection.purpose as usize].lock().await;
        if session.state.locked().is_given_up {
            return Ok(None);
        }
        if let Some(joined) = session.join(since) {
            return Ok(Some(joined));
        }
        let Some(alive) = connection.keep_alive(session.lease).await? else {
            session.give_up();
            return Ok(None);
        };
        let mut state = session.state.locked();
        // A later one for another purpose may have been answered before.
        if state.kept.is_none_or(|before| before.asked < alive.asked) {
            state.kept = Some(alive);
        }
        drop(state);
        Ok(Some(Joined { session: session.clone(), alive }))
    }

    /// Lets no key be put on a session any more. It may be repeated without an answer, because it
    /// always does the same.
    pub(super) async fn seal(&self, session: &Session) -> Result<(), BackendError> {
        session.close();
        let put = async || {
            let lease = session.lease;
            let put = json!({ "key": bytes(&keys::seal(lease)), "lease": lease });
            match self.releases.call::<IgnoredAny>("kv/put", &put).await {
                // No key is put on a lease that has ended.
                Err(Failure::NoLease) => session.give_up(),
                reply => drop(reply?),
            }
            Ok(())
        };
        session.sealed.get_or_try_init(put).await.map(drop)
    }
}

/// Begins a session. An id without an answer is never used: its lease ends by itself.
pub(super) async fn begin_session(
    connection: &Connection,
    id: i64,
    seconds: RangeInclusive<i64>,
) -> Result<Joined, BackendError> {
    let alive = connection.grant(id, seconds).await?;
    Ok(Joined { session: Session::new(id, alive), alive })
}

impl Connection {
    /// Makes a lease of the shortest of these times that etcd has. The last one is the ttl.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if etcd's shortest time is longer.
    pub(super) async fn grant(
        &self,
        id: i64,
        seconds: RangeInclusive<i64>,
    ) -> Result<Alive, BackendError> {
        let (asked, request) = (Moment::now(), json!({ "ID": id, "TTL": seconds.start() }));
        let granted = self.call::<LeaseReply>("lease/grant", &request).await?.seconds;
        if seconds.contains(&granted) {
            return Ok(Alive { seconds: granted, asked, term: None });
        }
        // It has no key yet.
        self.revoke(id).await?;
        let reason = format!(
            "{}: a ttl of {} s is too short; the shortest of this etcd is {granted} s",
            self.server(),
            seconds.end()
        );
        Err(BackendError::Invalid(reason.into()))
    }

    /// Sets the full time of a lease. Returns `None` if it has ended.
    pub(super) async fn keep_alive(&self, id: i64) -> Result<Option<Alive>, BackendError> {
        let asked = Moment::now();
        let reply: Streamed<LeaseReply> =
            self.call("lease/keepalive", &json!({ "ID": id })).await?;
        let LeaseReply { header, seconds, .. } = reply.result;
        Ok((seconds > 0).then_some(Alive { seconds, asked, term: Some(header.raft_term) }))
    }

    /// Ends a lease, if it exists, and deletes its key.
    pub(super) async fn revoke(&self, id: i64) -> Result<(), BackendError> {
        match self.call::<LeaseReply>("lease/revoke", &json!({ "ID": id })).await {
            Ok(_) | Err(Failure::NoLease) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Returns the seconds that a lease lives without a keep-alive, as etcd reports them: the rest
    /// of the last second is cut off. A new leader that has not yet set its end reports centuries,
    /// and it lives for no longer than the time for which it was granted.
    pub(super) async fn seconds_left(&self, id: i64) -> Result<u64, BackendError> {
        let reply: LeaseReply = self.call("lease/timetolive", &json!({ "ID": id })).await?;
        Ok(reply.seconds.min(reply.granted).try_into().unwrap_or(0))
    }
}

/// Returns the seconds of a ttl.
///
/// # Errors
/// [`BackendError::Invalid`] if they are not whole.
pub(super) fn whole_seconds(ttl: Ttl) -> Result<i64, BackendError> {
    let duration = ttl.as_duration();
    if duration.subsec_nanos() == 0 {
        Ok(duration.as_secs().cast_signed())
    } else {
        let millis = duration.as_millis();
        let reason = format!(
            "a ttl in etcd is in whole seconds, 2 s at least by default, and {millis} ms is not"
        );
        Err(BackendError::Invalid(reason.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_have_ended_are_forgotten() {
        let sessions = Sessions::default();
        let add = |seconds, age| {
            let asked = Moment::now().checked_sub(Duration::from_secs(age)).unwrap();
            sessions.add(seconds, Session::new(seconds, Alive::granted(seconds, asked)));
        };
        (2..=50).for_each(|seconds| add(seconds, 10));
        add(60, 0);
        let mut left: Vec<_> = sessions.newest.locked().keys().copied().collect();
        left.sort();
        assert_eq!(left, (11..=50).chain([60]).collect::<Vec<_>>());
    }

    #[test]
    fn keep_alive_before_an_election_does_not_count() {
        let etcd = Etcd::open("etcd://n1").unwrap();
        let later = Header { raft_term: 3, ..Header::default() };
        let confirmed = |term| {
            let alive = Alive { seconds: 5, asked: Moment::now(), term };
            Joined { session: Session::new(1, alive), alive }.confirm(later, &etcd)
        };
        let outdated = confirmed(Some(2)).unwrap_err();
        assert!(matches!(outdated, BackendError::Unavailable(_)), "{outdated:?}");
        for term in [Some(3), None] {
            assert!(confirmed(term).is_ok(), "{term:?}");
        }
    }
}
