//! A session, to which the nodes of a client's locks of one ttl belong.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    join,
    sync::{RwLock, RwLockReadGuard},
    time::sleep,
};
use zookeeper_client::SessionInfo;

use super::{
    connection::Connection,
    ensemble::{Ensemble, SessionRequest},
    failure::Failure,
};
use crate::{backend::BackendError, clock::Moment, ttl::Ttl};

/// How many bytes of paths one session may have. The end of a session lists them in one message, and
/// above 1 MiB (`jute.maxbuffer`) that message stops the whole ensemble (ZOOKEEPER-4306).
const MOST_BYTES: usize = 512 << 10;
/// What each path needs in that message beside its bytes.
const PATH_OVERHEAD: usize = 8;
/// How often a session is connected for one request.
const TRIES: usize = 2;
/// The least time between two proofs of one session, in parts of its ttl. So thousands of leases that
/// are renewed at the same time share one.
const PAUSE: u32 = 200;
/// How long a member has to see that a connection was left.
const PLACE_PAUSE: Duration = Duration::from_millis(5);
/// How long a session without a node is kept at least.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A session. Its connection is made again when it is cut.
pub(super) struct Session {
    pub(super) ttl: Ttl,
    pub(super) usage: Usage,
    info: SessionInfo,
    link: RwLock<Option<Link>>,
    /// The moment of the last proof.
    proven: Mutex<Moment>,
    bytes: AtomicUsize,
}

/// Whose locks a session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// Those of this client that have the same ttl.
    Shared,
    /// One that another process may take over.
    OneLock,
}

/// The connection of a session.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Whether the server has no followers. Then each write on the connection sets the session's full
    /// time.
    pub(super) is_standalone: bool,
}

/// What a connection of a session is made for.
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
    /// Makes a session that expires after a ttl.
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
        Ok(Arc::new(Self {
            ttl,
            usage,
            info,
            link: RwLock::new(Some(Link { connection, is_standalone })),
            proven: Mutex::new(asked),
            bytes: AtomicUsize::new(0),
        }))
    }

    pub(super) fn id(&self) -> i64 {
        self.info.id().0
    }

    /// Takes room for the node of this path.
    pub(super) fn room(self: Arc<Self>, path: &str) -> Arc<Room> {
        let bytes = path.len() + PATH_OVERHEAD;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Room { session: self, bytes })
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= MOST_BYTES
    }

    /// Whether it has no node, and nobody is about to make one.
    fn is_idle(self: &Arc<Self>) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0 && Arc::strong_count(self) == 1
    }

    /// A moment from which on the session has had its full time.
    pub(super) fn proven(&self) -> Moment {
        *self.proven.lock().expect("nothing panics while it holds this")
    }

    /// Remembers a proof, such as a write on the connection of a server without followers.
    pub(super) fn has_written(&self, asked: Moment) {
        let mut proven = self.proven.lock().expect("nothing panics while it holds this");
        *proven = asked.max(*proven);
    }

    /// Returns a connection, which may be older than the last answer.
    pub(super) async fn connected(
        &self,
        ensemble: &Ensemble,
    ) -> Result<RwLockReadGuard<'_, Link>, Failure> {
        match self.usable_link().await {
            Some(link) => Ok(link),
            None => self.proven_since(ensemble, Moment::now(), Purpose::Held).await,
        }
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
    ) -> Result<RwLockReadGuard<'_, Link>, Failure> {
        let mut tries = 1;
        loop {
            if let Some(link) = self.usable_link().await {
                if self.proven() >= since {
                    return Ok(link);
                }
                if link.is_standalone {
                    let asked = Moment::now();
                    if write(&link.connection).await.is_ok() {
                        self.has_written(asked);
                        return Ok(link);
                    }
                }
            }
            match self.connect_anew(ensemble, since, purpose).await {
                Ok(link) => return Ok(link),
                Err(failure @ Failure::Shortened { .. }) => return Err(failure),
                Err(failure) if tries == TRIES => return Err(failure),
                Err(_) => tries += 1,
            }
        }
    }

    async fn usable_link(&self) -> Option<RwLockReadGuard<'_, Link>> {
        let link = RwLockReadGuard::try_map(self.link.read().await, Option::as_ref).ok();
        link.filter(|link| link.connection.is_usable())
    }

    async fn connect_anew(
        &self,
        ensemble: &Ensemble,
        since: Moment,
        purpose: Purpose,
    ) -> Result<RwLockReadGuard<'_, Link>, Failure> {
        sleep((self.proven() + self.ttl.as_duration() / PAUSE).remaining()).await;
        // 1. Wait for the requests that are under way: they would end with their connection.
        let mut link = self.link.write().await;
        link.take_if(|link| !link.connection.is_usable());
        if link.is_none() || self.proven() < since {
            // 2. Make another connection, first to the member of the old one: it has given the session
            // its time, and was not started anew since.
            let granting = link.as_ref().map(|link| link.connection.member);
            let asked = Moment::now();
            let connection = loop {
                match ensemble.resume(self.info.clone(), self.ttl, granting).await {
                    // 3. No member takes one more connection: leave the old one first, but not for a try,
                    // because others may take the place. A member needs a moment to see that it is left.
                    Err(Failure::Other(BackendError::Unavailable(_)))
                        if (purpose == Purpose::Held && link.take().is_some())
                            || link.is_none() && asked.elapsed() < ensemble.answer_timeout =>
                    {
                        sleep(PLACE_PAUSE).await;
                    }
                    resumed => break resumed?,
                }
            };
            // 4. Prove it by a write.
            let (is_standalone, written) = join!(is_standalone(&connection), write(&connection));
            written.map_err(Failure::after_a_change)?;
            *link = Some(Link { connection, is_standalone });
            self.has_written(asked);
        }
        let link = RwLockReadGuard::map(link.downgrade(), |link| {
            link.as_ref().expect("it was made under the same lock")
        });
        Ok(link)
    }

    /// Makes the connection again if it was cut.
    pub(super) async fn mend(&self, ensemble: &Ensemble) {
        let is_cut = match self.link.try_read() {
            Ok(link) => link.as_ref().is_none_or(|link| !link.connection.is_usable()),
            Err(_) => false,
        };
        if is_cut {
            // The next request tries again.
            let _ = self.connected(ensemble).await;
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.session.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The sessions that locks of a client share, by their ttls.
#[derive(Default)]
pub(super) struct Sessions {
    open: Mutex<BTreeMap<Ttl, Vec<Arc<Session>>>>,
    opening: tokio::sync::Mutex<()>,
}

impl Sessions {
    /// Returns a session of this ttl that has room for another node.
    pub(super) async fn get(
        &self,
        ensemble: &Ensemble,
        ttl: Ttl,
    ) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.with_room(ttl) {
            return Ok(session);
        }
        let _opening = self.opening.lock().await;
        if let Some(session) = self.with_room(ttl) {
            return Ok(session);
        }
        let session = Session::open(ensemble, ttl, Usage::Shared).await?;
        let mut open = self.open();
        // One session without a node is enough: each needs a connection.
        open.values_mut().for_each(|sessions| sessions.retain(|session| !session.is_idle()));
        open.entry(ttl).or_default().push(session.clone());
        Ok(session)
    }

    fn with_room(&self, ttl: Ttl) -> Option<Arc<Session>> {
        self.open().get(&ttl)?.iter().find(|session| !session.is_full()).cloned()
    }

    /// Makes no more nodes in a session. Its connection ends with the last of its nodes.
    pub(super) fn forget(&self, session: &Arc<Session>) {
        let mut open = self.open();
        open.values_mut()
            .for_each(|sessions| sessions.retain(|other| !Arc::ptr_eq(other, session)));
    }

    /// Forgets those that had no node for long: they expire. Returns whether none is left.
    pub(super) fn sweep(&self) -> bool {
        let mut open = self.open();
        open.retain(|ttl, sessions| {
            let was_used = |session: &Arc<Session>| {
                session.proven().elapsed() < ttl.as_duration().max(IDLE_TIME)
            };
            sessions.retain(|session| was_used(session) || !session.is_idle());
            !sessions.is_empty()
        });
        open.is_empty()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Ttl, Vec<Arc<Session>>>> {
        self.open.lock().expect("nothing panics while it holds this")
    }
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
