//! The members of a ZooKeeper. A client connects to one of them, until it fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Mutex, time::timeout};
use zookeeper_client::{Client, Error, SessionInfo, TlsCa, TlsCerts, TlsIdentity, TlsOptions};

use super::{connection::Connection, failure::Failure, report, server::Server};
use crate::{backend::BackendError, tls, ttl::Ttl};

/// The time-out of the session that reads and watches. It holds no lock.
const READING_TIMEOUT_MS: u64 = 10_000;

#[derive(Clone)]
pub(super) struct Ensemble {
    shared: Arc<Shared>,
    pub(super) answer_timeout: Duration,
}

struct Shared {
    server: Server,
    current: AtomicUsize,
    reading: Mutex<Option<Arc<Connection>>>,
}

#[derive(Clone)]
pub(super) enum SessionRequest {
    /// A new one, which is closed when the connection is dropped.
    Temporary,
    /// A new one, which goes on without the connection.
    Lasting,
    /// This one, which goes on without the connection.
    Existing(SessionInfo),
    /// This one, which is closed when the connection is dropped.
    Last(SessionInfo),
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
    pub(super) async fn open_session(
        &self,
        ttl: Ttl,
        request: SessionRequest,
    ) -> Result<Connection, BackendError> {
        let ttl_ms = ttl.as_millis();
        let connection = self.connect(request, ttl_ms, ttl_ms, None).await?;
        match granted_ms(&connection) {
            granted_ms if granted_ms == ttl_ms => Ok(connection),
            granted_ms => Err(self.not_granted("short", ttl_ms, "shortest", granted_ms)),
        }
    }

    fn not_granted(&self, is: &str, ttl_ms: u64, limit: &str, granted_ms: u64) -> BackendError {
        let reason = format!(
            "{}: a ttl of {ttl_ms} ms is too {is}; the {limit} session of this ZooKeeper lasts \
             {granted_ms} ms",
            self.server()
        );
        BackendError::Invalid(reason.into())
    }

    /// Goes on with a session, and sets its full time. Only a new connection does this: its request
    /// goes to the leader, while a follower answers pings by itself. `granting` is a member that is
    /// known to have sessions of this time.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if no member gives the session its full time.
    /// [`Failure::Shortened`] if one has shortened it.
    pub(super) async fn resume(
        &self,
        session: SessionInfo,
        ttl: Ttl,
        granting: Option<usize>,
    ) -> Result<Connection, Failure> {
        let ttl_ms = ttl.as_millis();
        self.connect(SessionRequest::Existing(session), ttl_ms, ttl_ms, granting).await
    }

    pub(super) async fn reading(&self) -> Result<Arc<Connection>, Failure> {
        let mut reading = self.shared.reading.lock().await;
        if let Some(connection) = &*reading {
            if connection.is_usable() {
                return Ok(connection.clone());
            }
            // Its member has failed, or is silent.
            self.fail_over_from(connection.member);
            *reading = None;
        }
        let temporary = SessionRequest::Temporary;
        let connection = self.connect(temporary, READING_TIMEOUT_MS, 0, None).await?;
        Ok(reading.insert(Arc::new(connection)).clone())
    }

    pub(super) fn is_reading(&self) -> bool {
        self.shared.reading.try_lock().is_ok_and(|reading| reading.is_some())
    }

    /// Connects to one member after the other, until one answers, and has sessions that last as long as
    /// needed.
    ///
    /// A member reports the end of a session wrongly if it is a leader that was replaced, or belongs to
    /// another ensemble. So the others are asked, too.
    async fn connect(
        &self,
        request: SessionRequest,
        timeout_ms: u64,
        needed_ms: u64,
        granting: Option<usize>,
    ) -> Result<Connection, Failure> {
        let resumes = matches!(request, SessionRequest::Existing(_));
        let mut failures = Vec::new();
        for _ in &self.server().members {
            let number = self.shared.current.load(Ordering::Relaxed);
            let opened = match &request {
                SessionRequest::Existing(session) => {
                    let is_granting = granting == Some(number);
                    self.resume_at(number, session.clone(), timeout_ms, is_granting).await
                }
                new => self.open_at(number, new.clone(), timeout_ms, needed_ms).await,
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(failure) => failures.push(failure),
            }
            self.fail_over_from(number);
        }
        let weight = |failure: &Failure| match failure {
            // The session was shortened by one member, and given its full time by none.
            Failure::Shortened { .. } => 5,
            // A member that failed may have set the full time of the session. So nothing is rejected,
            // and the session has not expired on the word of the others.
            Failure::Closed(_) if resumes => 4,
            Failure::Other(BackendError::Unavailable(_)) if resumes => 3,
            Failure::Expired => 2,
            Failure::Closed(_) | Failure::Other(BackendError::Unavailable(_)) => 0,
            _ => 1,
        };
        Err(failures.into_iter().max_by_key(weight).expect("a URL has a member"))
    }

    async fn open_at(
        &self,
        number: usize,
        request: SessionRequest,
        timeout_ms: u64,
        needed_ms: u64,
    ) -> Result<Connection, Failure> {
        let connection = self.connect_to(number, request, timeout_ms).await?;
        let granted_ms = granted_ms(&connection);
        if granted_ms >= needed_ms {
            return Ok(connection);
        }
        let session = connection.client.session().clone();
        drop(connection);
        // Nobody needs it, and it may last for long.
        let _ = self.connect_to(number, SessionRequest::Last(session), granted_ms).await;
        Err(Failure::Other(self.not_granted("long", needed_ms, "longest", granted_ms)))
    }

    /// Goes on with a session at a member. One with a lower limit would shorten the session, and its
    /// reply may be lost: then the lock would be free before its lease ends. So another session, which
    /// is closed at once, is opened first.
    async fn resume_at(
        &self,
        number: usize,
        session: SessionInfo,
        timeout_ms: u64,
        is_granting: bool,
    ) -> Result<Connection, Failure> {
        if !is_granting {
            let probe = self.open_at(number, SessionRequest::Temporary, timeout_ms, timeout_ms);
            let ended = probe.await?.ended();
            // There may be no other place.
            let _ = timeout(self.answer_timeout, ended).await;
        }
        let resuming = self.connect_to(number, SessionRequest::Existing(session), timeout_ms);
        let connection = resuming.await?;
        match granted_ms(&connection) {
            // The member was started anew with another limit. Another may give the session its full
            // time again.
            granted_ms if granted_ms < timeout_ms => {
                Err(Failure::Shortened { session_ms: timeout_ms, granted_ms })
            }
            _ => Ok(connection),
        }
    }

    pub(super) async fn connect_to(
        &self,
        number: usize,
        request: SessionRequest,
        timeout_ms: u64,
    ) -> Result<Connection, Failure> {
        let (server, limit) = (self.server(), self.answer_timeout);
        let member = &server.members[number];
        let (address, mut url) = (member.to_string(), member.to_string());
        let mut connector = Client::connector()
            .with_fail_eagerly()
            .with_session_timeout(Duration::from_millis(timeout_ms));
        if let Some(credentials) = server.credentials() {
            connector = connector.with_auth("digest", credentials.as_bytes());
        }
        if let Some(certificates) = &server.tls {
            url = format!("tcp+tls://{member}");
            let options = tls_options(&certificates.current());
            connector = connector.with_tls(options.map_err(|error| Failure::new(&address, error))?);
        }
        let keeps_session =
            matches!(request, SessionRequest::Lasting | SessionRequest::Existing(_));
        if keeps_session {
            connector = connector.with_detached();
        }
        if let SessionRequest::Existing(session) | SessionRequest::Last(session) = request {
            connector = connector.with_session(session);
        }
        let opening =
            Connection::open(connector, &url, number, address.clone(), limit, keeps_session);
        match timeout(limit, opening).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error @ (Error::SessionExpired | Error::AuthFailed))) => {
                Err(Failure::new(&address, error))
            }
            Ok(Err(_)) => Err(report::why_no_session(server, member, limit).await),
            Err(_) => Err(Failure::silent(&address, limit)),
        }
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

pub(super) fn granted_ms(connection: &Connection) -> u64 {
    connection.client.session_timeout().as_millis().try_into().expect("a time-out has 32 bits")
}

/// The certificates as the client underneath takes them.
fn tls_options(files: &tls::Files) -> Result<TlsOptions, Error> {
    let text = |pem: &[u8]| String::from_utf8_lossy(pem).into_owned();
    let authorities = text(&files.authorities());
    if authorities.is_empty() {
        // Each connection fails with an unknown issuer.
        return Ok(TlsOptions::new());
    }
    let mut certificates = TlsCerts::builder().with_ca(TlsCa::from_pem(&authorities)?);
    if let Some([certificate, key]) = files.identity() {
        let identity = TlsIdentity::from_pem(&text(certificate.bytes()), &text(key.bytes()))?;
        certificates = certificates.with_identity(identity);
    }
    Ok(TlsOptions::new().with_certs(certificates.build()?))
}
