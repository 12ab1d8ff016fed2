//! A session, to which the nodes of a client's locks of one ttl belong.

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    join,
    sync::{RwLock, RwLockReadGuard},
    time::{sleep, timeout},
};
use zookeeper_client::SessionInfo;

use super::{
    connection::Connection,
    ensemble::{Ensemble, SessionRequest},
    failure::Failure,
};
use crate::{backend::BackendError, clock::Moment, mutex::Locked, retry::pauses, ttl::Ttl};

/// How many bytes of paths one session may have. The end of a session lists them in one message, and
/// above 1 MiB (`jute.maxbuffer`) that message stops the whole ensemble (ZOOKEEPER-4306).
const MOST_BYTES: usize = 512 << 10;
/// What each path needs in that message beside its bytes.
const PATH_OVERHEAD: usize = 8;
/// The least time between two proofs of one session, in parts of its ttl. So thousands of leases that
/// are renewed at the same time share one.
const PAUSE: u32 = 200;
/// How long a new connection waits for requests that are under way.
const REQUESTS_PATIENCE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A session. Its connection is made again when it is cut.
pub(super) struct Session {
    pub(super) ttl: Ttl,
    pub(super) usage: Usage,
    info: SessionInfo,
    link: Mutex<Option<Link>>,
    /// Each request holds a read lock. A connection that replaces another waits a little for them.
    requests: RwLock<()>,
    /// One caller at a time connects.
    connecting: tokio::sync::Mutex<()>,
    /// The moment of the last proof.
    proven: Mutex<Moment>,
    bytes: AtomicUsize,
    end: OnceLock<End>,
}

/// Since when and why a session is not used any more.
struct End {
    at: Moment,
    /// Its time-out, if a member has shortened it.
    granted_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Those of this client that have the same ttl.
    Shared,
    /// One that another process may take over.
    OneLock,
}

#[derive(Clone)]
struct Link {
    connection: Arc<Connection>,
    /// Whether the server has no followers. Then each write on the connection sets the session's full
    /// time.
    is_standalone: bool,
}

/// A connection in use. If its session connects anew, that waits a little until this is dropped.
pub(super) struct InUse<'a> {
    pub(super) connection: Arc<Connection>,
    pub(super) is_standalone: bool,
    _request: Option<RwLockReadGuard<'a, ()>>,
}

impl From<Arc<Connection>> for InUse<'_> {
    fn from(connection: Arc<Connection>) -> Self {
        Self { connection, is_standalone: false, _request: None }
    }
}

impl Deref for InUse<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// What a session or its connection is made for. A lock that is held waits for no try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A try. It must not cost the locks of the session their connection.
    Try,
    /// A lock that is held.
    Held,
}

/// A part of a session that a node takes, until this is dropped.
pub(super) struct Room {
    pub(super) session: Arc<Session>,
    bytes: usize,
}

impl Session {
    pub(super) async fn open(
        ensemble: &Ensemble,
        ttl: Ttl,
        usage: Usage,
    ) -> Result<Arc<Self>, BackendError> {
        let asked = Moment::now();
        // The leader makes it by a write, which goes through a quorum.
        let connection = ensemble.open_session(ttl, SessionRequest::Lasting).await?;
        let info = connection.client.session().clone();
        let is_standalone = is_standalone(&connection).await;
        let session = Arc::new(Self {
            ttl,
            usage,
            info,
            link: Mutex::new(Some(Link { connection: connection.into(), is_standalone })),
            requests: RwLock::default(),
            connecting: tokio::sync::Mutex::default(),
            proven: Mutex::new(asked),
            bytes: AtomicUsize::new(0),
            end: OnceLock::new(),
        });
        tokio::spawn(keep_connected(Arc::downgrade(&session), ensemble.clone()));
        Ok(session)
    }

    pub(super) fn id(&self) -> i64 {
        self.info.id().0
    }

    pub(super) fn room(self: Arc<Self>, path: &str) -> Arc<Room> {
        let bytes = path.len() + PATH_OVERHEAD;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Room { session: self, bytes })
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= MOST_BYTES
    }

    /// Whether it has no node, and nobody is about to make one.
    pub(super) fn is_idle(self: &Arc<Self>) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0 && Arc::strong_count(self) == 1
    }

    /// A moment from which on the session has had its full time.
    pub(super) fn proven(&self) -> Moment {
        *self.proven.locked()
    }

    /// Remembers a proof, such as a write on the connection of a server without followers.
    pub(super) fn has_written(&self, asked: Moment) {
        let mut proven = self.proven.locked();
        *proven = asked.max(*proven);
    }

    /// Uses the session no more. It ends within its time, and what is left on it goes with it. Its other
    /// locks move to another session when they are renewed.
    pub(super) fn give_up(&self) {
        self.end(None);
    }

    fn end(&self, granted_ms: Option<u64>) {
        self.end.get_or_init(|| End { at: Moment::now(), granted_ms });
        self.leave();
    }

    pub(super) fn is_used(&self) -> bool {
        self.end.get().is_none()
    }

    /// Whether it has expired, because it was not used for so long.
    pub(super) fn has_expired(&self) -> bool {
        self.end.get().is_some_and(|end| (end.at + self.ttl.as_duration()).has_passed())
    }

    /// # Errors
    /// If the session is not used any more.
    fn check_used(&self) -> Result<(), Failure> {
        match self.end.get() {
            None => Ok(()),
            Some(End { granted_ms: None, .. }) => Err(Failure::Expired),
            Some(&End { granted_ms: Some(granted_ms), .. }) => {
                Err(Failure::Shortened { session_ms: self.ttl.as_millis(), granted_ms })
            }
        }
    }

    /// Returns a connection, which may be older than the last answer.
    pub(super) async fn connected(&self, ensemble: &Ensemble) -> Result<InUse<'_>, Failure> {
        self.proven_since(ensemble, self.proven(), Purpose::Held).await
    }

    /// Returns a connection behind a proof that the session had its full time at this moment, or later.
    ///
    /// The answer of a follower does not prove it, because a follower reports its sessions only when the
    /// leader pings it. A new connection does: its request goes to the leader. The write behind it goes
    /// through a quorum, and so shows that this leader was still the leader. A leader that is elected
    /// later gives the session its full time again.
    pub(super) async fn proven_since(
        &self,
        ensemble: &Ensemble,
        since: Moment,
        purpose: Purpose,
    ) -> Result<InUse<'_>, Failure> {
        let mut has_connected = false;
        loop {
            if let Some(link) = self.usable_link().await {
                if self.proven() >= since {
                    return Ok(link);
                }
                if link.is_standalone {
                    let asked = Moment::now();
                    if write(&link).await.is_ok() {
                        self.has_written(asked);
                        return Ok(link);
                    }
                }
            }
            if has_connected {
                return Err(not_connected());
            }
            self.connect_anew(ensemble, since, purpose).await?;
            has_connected = true;
        }
    }

    async fn usable_link(&self) -> Option<InUse<'_>> {
        let request = self.requests.read().await;
        let link = self.link.locked().clone().filter(|link| link.connection.is_usable())?;
        let Link { connection, is_standalone } = link;
        Some(InUse { connection, is_standalone, _request: Some(request) })
    }

    /// Makes another connection, and proves the session over it, unless another caller just did.
    async fn connect_anew(
        &self,
        ensemble: &Ensemble,
        since: Moment,
        purpose: Purpose,
    ) -> Result<(), Failure> {
        let is_connected = || {
            let link = self.link.locked();
            let usable = link.as_ref().filter(|link| link.connection.is_usable());
            usable.is_some().then(|| self.proven())
        };
        if let Some(proven) = is_connected() {
            sleep((proven + self.ttl.as_duration() / PAUSE).remaining()).await;
        }
        // 1. One caller at a time connects. A try that waits for another caller does not connect after it:
        // a lock that is held would wait for all tries.
        let was_waiting = self.connecting.try_lock().is_err();
        let _turn = self.connecting.lock().await;
        self.check_used()?;
        if is_connected().is_some_and(|proven| proven >= since) {
            return Ok(());
        }
        if purpose == Purpose::Try && was_waiting {
            return Err(not_connected());
        }
        // 2. Wait for the requests that are under way, which would end with their connection. A request
        // that hangs must not delay a renewal.
        let _no_requests = timeout(REQUESTS_PATIENCE, self.requests.write()).await;
        // 3. Make another connection, first to the member of the old one: it has given the session its
        // time, and was not started anew since.
        let granting =
            is_connected().and(self.link.locked().as_ref().map(|link| link.connection.member));
        let asked = Moment::now();
        let resume = || ensemble.resume(self.info.clone(), self.ttl, granting);
        let mut resumed = resume().await;
        // 4. No member takes one more connection: leave the old one first, but not for a try, because
        // others may take the place. A member needs a moment to see that it is left.
        if let Err(Failure::Closed(_)) = resumed
            && purpose == Purpose::Held
            && is_connected().is_some()
        {
            self.leave();
            let left = Moment::now();
            let mut pauses = pauses(LONGEST_PAUSE);
            while let Err(Failure::Closed(_)) = resumed
                && left.elapsed() < ensemble.answer_timeout
            {
                sleep(pauses.next().expect("the pauses never end")).await;
                resumed = resume().await;
            }
        }
        let connection = match resumed {
            Err(failure @ Failure::Shortened { granted_ms, .. }) => {
                self.end(Some(granted_ms));
                return Err(failure);
            }
            // Its leases have ended, and its waiters have lost their places. Nobody needs to know whether
            // it has expired, too.
            Err(Failure::Closed(_) | Failure::Other(BackendError::Unavailable(_)))
                if (self.proven() + self.ttl.as_duration()).has_passed() =>
            {
                self.give_up();
                return Err(Failure::Expired);
            }
            resumed => resumed?,
        };
        // 5. Prove it by a write.
        let (is_standalone, written) = join!(is_standalone(&connection), write(&connection));
        written.map_err(Failure::after_a_change)?;
        *self.link.locked() = Some(Link { connection: connection.into(), is_standalone });
        self.has_written(asked);
        // It may have been given up meanwhile.
        self.check_used().inspect_err(|_| self.leave())
    }

    fn leave(&self) {
        let link = self.link.locked().take();
        link.inspect(|link| link.connection.end());
    }
}

/// Makes the connection of a session again whenever it was cut.
async fn keep_connected(session: Weak<Session>, ensemble: Ensemble) {
    let mut backoff = pauses(LONGEST_PAUSE);
    loop {
        let Some(ended) = session.upgrade().map(|session| {
            let link = session.link.locked();
            link.as_ref().map(|link| link.connection.ended())
        }) else {
            return;
        };
        if let Some(ended) = ended {
            ended.await;
        }
        let is_connected = match session.upgrade() {
            Some(session) if session.is_used() => {
                let connected = session.connected(&ensemble).await;
                connected.is_ok()
            }
            _ => return,
        };
        match is_connected {
            true => backoff = pauses(LONGEST_PAUSE),
            false => sleep(backoff.next().expect("the pauses never end")).await,
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.session.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reports that the connection was cut, and that nobody else has made it again.
fn not_connected() -> Failure {
    let reason = "the connection of the session could not be made again";
    Failure::Other(BackendError::Unavailable(reason.into()))
}

/// Writes what changes nothing, through a quorum. A check that fails goes through one, too, unless the
/// connection has ended.
async fn write(connection: &Connection) -> Result<(), Failure> {
    match connection.check("/").await {
        Err(Failure::NoNode | Failure::Other(BackendError::Rejected(_)))
            if connection.is_usable() =>
        {
            Ok(())
        }
        written => written,
    }
}

/// Whether a server has no followers: it lists no members.
async fn is_standalone(connection: &Connection) -> bool {
    let config = connection.answer(connection.client.get_config()).await;
    config.is_ok_and(|(config, _)| !String::from_utf8_lossy(&config).contains("server."))
}
