//! The members of a ZooKeeper. A client connects to one of them, until it fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error, SessionInfo};

use super::{connection::Connection, door, failure::Failure, server::Server};
use crate::{backend::BackendError, ttl::Ttl};

/// The time-out of the session that reads and watches. It holds no lock.
const READING_TIMEOUT_MS: u64 = 10_000;

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

/// The session of a connection.
#[derive(Clone)]
pub(super) enum Of {
    /// A new one, which is closed when the connection is dropped.
    Connection,
    /// A new one, which goes on without the connection.
    New,
    /// This one, which goes on without the connection.
    Session(SessionInfo),
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
    pub(super) async fn open_session(&self, ttl: Ttl, of: Of) -> Result<Connection, BackendError> {
        let ttl_ms = ttl.as_millis();
        let connection = self.connect_for(of, ttl_ms, ttl_ms).await?;
        let granted_ms = granted_ms(&connection);
        if granted_ms == ttl_ms {
            return Ok(connection);
        }
        let reason = format!(
            "{}: a ttl of {ttl_ms} ms is too short; the shortest session of this ZooKeeper lasts \
             {granted_ms} ms",
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
    pub(super) async fn resume(
        &self,
        session: SessionInfo,
        ttl: Ttl,
    ) -> Result<Connection, Failure> {
        self.connect_for(Of::Session(session), ttl.as_millis(), ttl.as_millis()).await
    }

    /// The connection that reads and watches.
    pub(super) async fn reading(&self) -> Result<Arc<Connection>, Failure> {
        let mut reading = self.shared.reading.lock().await;
        if let Some(connection) = &*reading {
            if connection.is_usable() {
                return Ok(connection.clone());
            }
            // Its member has failed, or is silent.
            self.forget_granted(connection.member);
            self.fail_over_from(connection.member);
            *reading = None;
        }
        let connection = self.connect_for(Of::Connection, READING_TIMEOUT_MS, 0).await?;
        Ok(reading.insert(Arc::new(connection)).clone())
    }

    /// Whether there is a connection that reads and watches.
    pub(super) fn is_reading(&self) -> bool {
        self.shared.reading.try_lock().is_ok_and(|reading| reading.is_some())
    }

    /// Connects to one member after the other, until one answers, and has sessions that last as long as
    /// needed.
    ///
    /// A member reports the end of a session wrongly if it is a leader that was replaced, or belongs to
    /// another ensemble. So the others are asked, too.
    async fn connect_for(
        &self,
        of: Of,
        timeout_ms: u64,
        needed_ms: u64,
    ) -> Result<Connection, Failure> {
        let (mut shortened, mut expired, mut rejected, mut failed) = (None, None, None, None);
        let resumes = matches!(of, Of::Session(_));
        for _ in &self.server().members {
            let number = self.shared.current.load(Ordering::Relaxed);
            let opened = async {
                self.check_limit(number, needed_ms).await?;
                self.connect_to(number, of.clone(), timeout_ms).await
            };
            match opened.await {
                Ok(connection) if granted_ms(&connection) < needed_ms => {
                    // The member was started anew with another limit. Another may give the session its
                    // full time again.
                    self.forget_granted(number);
                    let granted_ms = granted_ms(&connection);
                    shortened = Some(match resumes {
                        true => Failure::Shortened { session_ms: needed_ms, granted_ms },
                        false => self.too_long(needed_ms, granted_ms),
                    });
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
        let unusable = if resumes { failed.or(rejected) } else { rejected.or(failed) };
        Err(shortened.or(expired).or(unusable).expect("a URL has a member"))
    }

    /// Connects to a member, and limits the time of its answer.
    pub(super) async fn connect_to(
        &self,
        number: usize,
        of: Of,
        timeout_ms: u64,
    ) -> Result<Connection, Failure> {
        let (server, limit) = (self.server(), self.answer_timeout);
        let member = &server.members[number];
        let mut connector = Client::connector()
            .with_fail_eagerly()
            .with_session_timeout(Duration::from_millis(timeout_ms));
        if let Some(user) = &server.user {
            connector = connector.with_auth("digest", user.credentials().as_bytes());
        }
        let mut url = member.to_string();
        if let Some(certificates) = &server.tls {
            url = format!("tcp+tls://{member}");
            connector = connector.with_tls(certificates.options());
        }
        let (address, keeps_session) = (member.to_string(), !matches!(of, Of::Connection));
        connector = match of {
            Of::Connection => connector,
            Of::New => connector.with_detached(),
            Of::Session(session) => connector.with_detached().with_session(session),
        };
        let opening = Connection::open(connector, &url, number, address, limit, keeps_session);
        let connection = match timeout(limit, opening).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error @ (Error::SessionExpired | Error::AuthFailed))) => {
                return Err(Failure::new(&member.to_string(), error));
            }
            // The client does not tell the reason.
            Ok(Err(_)) => return Err(door::knock(server, member, limit).await),
            Err(_) => {
                let reason = format!("no answer within {} ms", limit.as_millis());
                return Err(Failure::unavailable(&member.to_string(), &reason));
            }
        };
        self.shared.granted[number].fetch_max(granted_ms(&connection), Ordering::Relaxed);
        Ok(connection)
    }

    /// Checks that a member has sessions of this time, with a session that is closed at once. To go on
    /// with a session at a member with a lower limit would shorten it, and the reply may be lost: then
    /// the lock would be free before its lease ends.
    async fn check_limit(&self, number: usize, needed_ms: u64) -> Result<(), Failure> {
        if let Ok(reading) = self.shared.reading.try_lock()
            && let Some(connection) = &*reading
            && !connection.is_usable()
        {
            // The member may have been started anew.
            self.forget_granted(connection.member);
        }
        if self.shared.granted[number].load(Ordering::Relaxed) >= needed_ms {
            return Ok(());
        }
        let connection = self.connect_to(number, Of::Connection, needed_ms).await?;
        match granted_ms(&connection) {
            granted_ms if granted_ms < needed_ms => Err(self.too_long(needed_ms, granted_ms)),
            _ => Ok(()),
        }
    }

    /// Forgets which sessions a member has, because it may have been started anew.
    pub(super) fn forget_granted(&self, number: usize) {
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

/// The time-out of a connection's session, in milliseconds.
pub(super) fn granted_ms(connection: &Connection) -> u64 {
    connection.client.session_timeout().as_millis().try_into().expect("a time-out has 32 bits")
}
