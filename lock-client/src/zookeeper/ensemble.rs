//! The members of a ZooKeeper. A client connects to one of them, until it fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, time::timeout};

use super::{
    connection::{Connection, Keeping},
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
    reading: Mutex<Option<Arc<Connection>>>,
}

impl Ensemble {
    pub(super) fn new(server: Server, answer_timeout: Duration) -> Self {
        let shared = Shared { server, current: AtomicUsize::new(0), reading: Mutex::new(None) };
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
        let asked = ttl.as_millis();
        let timeout_ms = i32::try_from(asked).expect("7 days fit");
        let connection = self.connect_for(None, timeout_ms, 0, Keeping::ByConnecting).await?;
        let granted = connection.session.timeout_ms;
        if granted == asked {
            return Ok(connection);
        }
        // It has no node yet.
        connection.close_session().await?;
        let (wrong, limit) =
            if asked < granted { ("short", "shortest") } else { ("long", "longest") };
        let reason = format!(
            "{}: a ttl of {asked} ms is too {wrong}; the {limit} session of this ZooKeeper lasts \
             {granted} ms",
            self.server()
        );
        Err(BackendError::Invalid(reason.into()))
    }

    /// Goes on with a session, and sets its full time. Only a new connection does this: its request
    /// goes to the leader, while a follower answers pings by itself.
    ///
    /// # Errors
    /// [`Failure::Shortened`] if no member gives the session its full time, and one has shortened it.
    pub(super) async fn resume(&self, session: &Session) -> Result<Connection, Failure> {
        self.resume_for(session, session.timeout_ms).await
    }

    /// Goes on with a session, to end it. It does not matter how long it would last.
    pub(super) async fn resume_to_end(&self, session: &Session) -> Result<Connection, Failure> {
        self.resume_for(session, 0).await
    }

    async fn resume_for(&self, session: &Session, least_ms: u64) -> Result<Connection, Failure> {
        let timeout_ms = session.timeout_ms.try_into().map_err(|_| Failure::foreign())?;
        self.connect_for(Some(session), timeout_ms, least_ms, Keeping::ByConnecting).await
    }

    /// The connection that reads and watches.
    pub(super) async fn reading(&self) -> Result<Arc<Connection>, Failure> {
        let mut reading = self.shared.reading.lock().await;
        if let Some(connection) = &*reading {
            if !connection.has_ended() {
                return Ok(connection.clone());
            }
            // Its member has failed, or is silent.
            self.fail_over_from(connection.member);
            *reading = None;
        }
        let connection = self.connect_for(None, READING_TIMEOUT_MS, 0, Keeping::ByPings).await?;
        Ok(reading.insert(Arc::new(connection)).clone())
    }

    /// Connects to one member after the other, until one answers, and gives the session at least this
    /// time.
    async fn connect_for(
        &self,
        session: Option<&Session>,
        timeout_ms: i32,
        least_ms: u64,
        keeping: Keeping,
    ) -> Result<Connection, Failure> {
        let server = self.server();
        let (mut shortened, mut failed) = (None, None);
        for _ in &server.members {
            let number = self.shared.current.load(Ordering::Relaxed);
            let limit = self.answer_timeout;
            let opening = Connection::open(server, number, session, timeout_ms, keeping, limit);
            let opened = timeout(limit, opening).await.unwrap_or_else(|_| {
                let reason = format!("no answer within {} ms", limit.as_millis());
                Err(Failure::unavailable(&server.members[number].to_string(), &reason))
            });
            match opened {
                Ok(connection) if connection.session.timeout_ms < least_ms => {
                    // The member has shortened the session. Another may give it its full time again.
                    self.fail_over_from(number);
                    let granted_ms = connection.session.timeout_ms;
                    shortened = Some(Failure::Shortened { session_ms: least_ms, granted_ms });
                }
                Ok(connection) => return Ok(connection),
                Err(Failure::Other(error)) => {
                    self.fail_over_from(number);
                    failed = Some(Failure::Other(error));
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(shortened.or(failed).expect("a URL has a member"))
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
