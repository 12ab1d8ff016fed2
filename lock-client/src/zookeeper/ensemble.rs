//! The members of a ZooKeeper. A client connects to one of them, until it fails.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, time::timeout};

use super::{
    connection::{
        Connection,
        Keeping::{self, ByConnecting, ByPings},
    },
    failure::Failure,
    server::Server,
    session::Session,
};
use crate::{backend::BackendError, ttl::Ttl};

/// The time-out of the session that reads and watches. It holds no lock.
const READING_TIMEOUT_MS: i32 = 10_000;

/// The members, and the connection that reads and watches.
#[derive(Clone)]
pub(super) struct Ensemble {
    shared: Arc<Shared>,
    pub(super) answer_timeout: Duration,
}

struct Shared {
    server: Server,
    /// The number of the member that is asked first.
    current: AtomicUsize,
    /// The longest time-out that each member has granted since it last failed, in milliseconds.
    granted: Vec<AtomicU64>,
    reading: Mutex<Option<Arc<Connection>>>,
}

impl Ensemble {
    pub(super) fn new(server: Server, answer_timeout: Duration) -> Self {
        let granted = server.members.iter().map(|_| AtomicU64::new(0)).collect();
        let (current, reading) = (AtomicUsize::new(0), Mutex::new(None));
        let shared = Shared { server, current, granted, reading };
        Self { shared: Arc::new(shared), answer_timeout }
    }

    pub(super) fn answer_within(self, answer_timeout: Duration) -> Self {
        Self { answer_timeout, ..self }
    }

    pub(super) fn server(&self) -> &Server {
        &self.shared.server
    }

    /// Makes a session that expires after a ttl.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if this ZooKeeper has no such sessions.
    pub(super) async fn open_session(&self, ttl: Ttl) -> Result<Connection, BackendError> {
        self.open_session_of(ttl.as_millis()..=ttl.as_millis()).await
    }

    /// Makes a session that expires after this time, or after the ttl if the ttl is shorter.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if this ZooKeeper has no session that lasts as long as the ttl, which
    /// the holder will need.
    pub(super) async fn open_short_session(
        &self,
        ttl: Ttl,
        time: Duration,
    ) -> Result<Connection, BackendError> {
        self.open_session_of(ttl.at_most(time).as_millis()..=ttl.as_millis()).await
    }

    /// Makes the shortest session of these times, in milliseconds, that this ZooKeeper has.
    async fn open_session_of(
        &self,
        times: RangeInclusive<u64>,
    ) -> Result<Connection, BackendError> {
        let (shortest, longest) = (*times.start(), *times.end());
        let timeout_ms = i32::try_from(shortest).expect("7 days fit");
        let needed_ms = if shortest < longest { longest } else { 0 };
        let connection = self.connect_for(None, timeout_ms, needed_ms, ByConnecting).await?;
        let granted = connection.session.timeout_ms;
        if times.contains(&granted) {
            return Ok(connection);
        }
        // It has no node yet.
        connection.close_session().await?;
        if granted < shortest {
            return Err(self.too_long(longest, granted).into());
        }
        let reason = format!(
            "{}: a ttl of {longest} ms is too short; the shortest session of this ZooKeeper lasts \
             {granted} ms",
            self.server()
        );
        Err(BackendError::Invalid(reason.into()))
    }

    fn too_long(&self, ttl_ms: u64, granted_ms: u64) -> Failure {
        let reason = format!(
            "{}: a ttl of {ttl_ms} ms is too long; the longest session of this ZooKeeper lasts \
             {granted_ms} ms",
            self.server()
        );
        Failure::Other(BackendError::Invalid(reason.into()))
    }

    /// Goes on with a session, and sets its full time. Only a new connection does this: its request
    /// goes to the leader, while a follower answers pings by itself.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if no member gives the session its full time.
    /// [`Failure::Shortened`] if one has shortened it.
    pub(super) async fn resume(&self, session: &Session) -> Result<Connection, Failure> {
        self.resume_for(session, session.timeout_ms).await
    }

    /// Goes on with a session, to end it. It does not matter how long it would last.
    pub(super) async fn resume_to_end(&self, session: &Session) -> Result<Connection, Failure> {
        self.resume_for(session, 0).await
    }

    async fn resume_for(&self, session: &Session, needed_ms: u64) -> Result<Connection, Failure> {
        let timeout_ms = session.timeout_ms.try_into().map_err(|_| Failure::foreign())?;
        self.connect_for(Some(session), timeout_ms, needed_ms, ByConnecting).await
    }

    /// The connection that reads and watches.
    pub(super) async fn reading(&self) -> Result<Arc<Connection>, Failure> {
        let mut reading = self.shared.reading.lock().await;
        if let Some(connection) = &*reading {
            if !connection.has_ended() {
                return Ok(connection.clone());
            }
            // Its member has failed, or is silent.
            self.forget_granted(connection.member);
            self.fail_over_from(connection.member);
            *reading = None;
        }
        let connection = self.connect_for(None, READING_TIMEOUT_MS, 0, ByPings).await?;
        Ok(reading.insert(Arc::new(connection)).clone())
    }

    /// Connects to one member after the other, until one answers, and has sessions that last as long as
    /// needed.
    ///
    /// A member reports the end of a session wrongly if it is a leader that was replaced, or belongs to
    /// another ensemble. So the others are asked, too.
    async fn connect_for(
        &self,
        session: Option<&Session>,
        timeout_ms: i32,
        needed_ms: u64,
        keeping: Keeping,
    ) -> Result<Connection, Failure> {
        let (mut shortened, mut expired, mut rejected, mut failed) = (None, None, None, None);
        for _ in &self.server().members {
            let number = self.shared.current.load(Ordering::Relaxed);
            let opened = async {
                self.check_limit(number, needed_ms).await?;
                self.connect_to(number, session, timeout_ms, keeping).await
            };
            match opened.await {
                Ok(connection)
                    if session.is_some() && connection.session.timeout_ms < needed_ms =>
                {
                    // The member was started anew with another limit. Another may give the session its
                    // full time again.
                    self.forget_granted(number);
                    let granted_ms = connection.session.timeout_ms;
                    shortened = Some(Failure::Shortened { session_ms: needed_ms, granted_ms });
                }
                Ok(connection) => return Ok(connection),
                Err(Failure::Expired) => expired = Some(Failure::Expired),
                Err(failure @ Failure::Other(BackendError::Invalid(_))) => rejected = Some(failure),
                Err(failure @ Failure::Other(_)) => {
                    self.forget_granted(number);
                    failed = Some(failure);
                }
                Err(failure) => return Err(failure),
            }
            self.fail_over_from(number);
        }
        // A member that failed may have set the full time of the session. So nothing is rejected.
        let unusable = if session.is_some() { failed.or(rejected) } else { rejected.or(failed) };
        Err(shortened.or(expired).or(unusable).expect("a URL has a member"))
    }

    /// Connects to a member, and limits the time of its answer.
    async fn connect_to(
        &self,
        number: usize,
        session: Option<&Session>,
        timeout_ms: i32,
        keeping: Keeping,
    ) -> Result<Connection, Failure> {
        let (server, limit) = (self.server(), self.answer_timeout);
        let opening = Connection::open(server, number, session, timeout_ms, keeping, limit);
        let connection = timeout(limit, opening).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} ms", limit.as_millis());
            Err(Failure::unavailable(&server.members[number].to_string(), &reason))
        })?;
        let granted_ms = connection.session.timeout_ms;
        self.shared.granted[number].fetch_max(granted_ms, Ordering::Relaxed);
        Ok(connection)
    }

    /// Checks that a member has sessions of this time, with a session that is closed at once. To go on
    /// with a session at a member with a lower limit would shorten it, and the reply may be lost: then
    /// the lock would be free before its lease ends.
    async fn check_limit(&self, number: usize, needed_ms: u64) -> Result<(), Failure> {
        if let Ok(reading) = self.shared.reading.try_lock()
            && let Some(connection) = &*reading
            && connection.has_ended()
        {
            // The member may have been started anew.
            self.forget_granted(connection.member);
        }
        if self.shared.granted[number].load(Ordering::Relaxed) >= needed_ms {
            return Ok(());
        }
        let timeout_ms = i32::try_from(needed_ms).map_err(|_| Failure::foreign())?;
        let connection = self.connect_to(number, None, timeout_ms, ByConnecting).await?;
        connection.close_session().await?;
        match connection.session.timeout_ms {
            granted_ms if granted_ms < needed_ms => Err(self.too_long(needed_ms, granted_ms)),
            _ => Ok(()),
        }
    }

    fn forget_granted(&self, number: usize) {
        self.shared.granted[number].store(0, Ordering::Relaxed);
    }

    /// Lets clients connect to the member after this one, unless they already connect to another.
    fn fail_over_from(&self, number: usize) {
        let next = (number + 1) % self.server().members.len();
        // Another request may have left the member.
        let _ = self.shared.current.compare_exchange(
            number,
            next,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}
