//! A session, to which the nodes of a client's locks of one ttl belong.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
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
    ensemble::{Ensemble, Of},
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
/// How long a session without a node is kept at least.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// A session. Its connection is made again when it is cut.
pub(super) struct Session {
    pub(super) ttl: Ttl,
    info: SessionInfo,
    link: RwLock<Option<Link>>,
    /// The moment of the last proof.
    proven: Mutex<Moment>,
    bytes: AtomicUsize,
    /// Whether the client has given it up.
    has_ended: AtomicBool,
    /// Whether a member has reported its end, which may be wrong.
    is_doubted: AtomicBool,
}

/// The connection of a session.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Whether there is one server alone, which has no followers. Then each write on the connection sets
    /// the session's full time.
    pub(super) is_alone: bool,
}

/// A part of a session that a node takes, until this is dropped.
pub(super) struct Room {
    pub(super) session: Arc<Session>,
    bytes: usize,
}

impl Session {
    /// Makes a session that expires after a ttl.
    pub(super) async fn open(ensemble: &Ensemble, ttl: Ttl) -> Result<Arc<Self>, BackendError> {
        let asked = Moment::now();
        // The leader makes it by a write, which goes through a quorum.
        let connection = ensemble.open_session(ttl, Of::New).await?;
        let info = connection.client.session().clone();
        let is_alone = is_alone(&connection).await;
        Ok(Arc::new(Self {
            ttl,
            info,
            link: RwLock::new(Some(Link { connection, is_alone })),
            proven: Mutex::new(asked),
            bytes: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            is_doubted: AtomicBool::new(false),
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

    fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    /// Whether it has no node, and nobody is about to make one.
    fn is_idle(self: &Arc<Self>) -> bool {
        self.is_empty() && Arc::strong_count(self) == 1
    }

    /// A moment from which on the session has had its full time.
    pub(super) fn proven(&self) -> Moment {
        *self.proven.lock().expect("nothing panics while it holds this")
    }

    /// Remembers a write on the connection of a server that is alone.
    pub(super) fn has_written(&self, asked: Moment) {
        let mut proven = self.proven.lock().expect("nothing panics while it holds this");
        *proven = asked.max(*proven);
    }

    /// Makes no more nodes in the session until it is connected again.
    pub(super) fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Relaxed);
    }

    /// Gives the session up: nothing is connected to it any more, so it ends after its time.
    pub(super) fn give_up(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        if let Ok(mut link) = self.link.try_write() {
            *link = None;
        }
    }

    /// Returns a connection, which may be older than the last answer.
    pub(super) async fn connected(
        &self,
        ensemble: &Ensemble,
    ) -> Result<RwLockReadGuard<'_, Link>, Failure> {
        match self.usable_link().await {
            Some(link) => Ok(link),
            None => self.proven_since(ensemble, Moment::now()).await,
        }
    }

    /// Returns a connection behind a proof that the session had its full time at this moment, or later.
    ///
    /// The answer of a follower does not prove it, because a follower reports its sessions only when the
    /// leader pings it. A new connection does: its request goes to the leader. The write behind it goes
    /// through a quorum, and so shows that this leader was still the leader.
    pub(super) async fn proven_since(
        &self,
        ensemble: &Ensemble,
        since: Moment,
    ) -> Result<RwLockReadGuard<'_, Link>, Failure> {
        let mut tries = 1;
        loop {
            if self.has_ended.load(Ordering::Relaxed) {
                *self.link.write().await = None;
                return Err(Failure::Expired);
            }
            if let Some(link) = self.usable_link().await {
                if self.proven() >= since {
                    return Ok(link);
                }
                if link.is_alone {
                    let asked = Moment::now();
                    if wrote(&link.connection).await.is_ok() {
                        self.has_written(asked);
                        return Ok(link);
                    }
                }
            }
            match self.connect_anew(ensemble, since).await {
                Ok(link) => return Ok(link),
                Err(failure @ Failure::Shortened { .. }) => return Err(failure),
                Err(failure) if tries == TRIES => return Err(failure),
                Err(_) => tries += 1,
            }
        }
    }

    async fn usable_link(&self) -> Option<RwLockReadGuard<'_, Link>> {
        let link = self.link.read().await;
        RwLockReadGuard::try_map(link, Option::as_ref)
            .ok()
            .filter(|link| link.connection.is_usable() && !self.has_ended.load(Ordering::Relaxed))
    }

    async fn connect_anew(
        &self,
        ensemble: &Ensemble,
        since: Moment,
    ) -> Result<RwLockReadGuard<'_, Link>, Failure> {
        sleep((self.proven() + self.ttl.as_duration() / PAUSE).remaining()).await;
        // 1. Wait for the requests that are under way: they would end with their connection.
        let mut link = self.link.write().await;
        let is_usable = link.as_ref().is_some_and(|link| link.connection.is_usable());
        if !is_usable || self.proven() < since {
            // 2. Leave the old connection if it was cut. The member may have been started anew.
            if let Some(cut) = link.take_if(|link| link.connection.is_cut()) {
                ensemble.forget_granted(cut.connection.member);
            }
            let asked = Moment::now();
            // 3. Make another, and write. If no member takes one more connection, leave the old one first.
            let resume = || ensemble.resume(self.info.clone(), self.ttl);
            let connection = match resume().await {
                Err(Failure::Other(BackendError::Unavailable(_))) if link.take().is_some() => {
                    resume().await?
                }
                resumed => resumed?,
            };
            let (is_alone, written) = join!(is_alone(&connection), wrote(&connection));
            written.map_err(Failure::after_a_change)?;
            *link = Some(Link { connection, is_alone });
            self.has_written(asked);
            self.is_doubted.store(false, Ordering::Relaxed);
        }
        let link = RwLockReadGuard::map(link.downgrade(), |link| {
            link.as_ref().expect("it was made under the same lock")
        });
        Ok(link)
    }

    /// Makes the connection again if it was cut.
    pub(super) async fn mend(&self, ensemble: &Ensemble) {
        let is_cut = match self.link.try_read() {
            Ok(link) => link.as_ref().is_none_or(|link| link.connection.is_cut()),
            Err(_) => false,
        };
        if is_cut && !self.is_empty() {
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

/// The sessions of a client, by their ttls.
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
        let session = Session::open(ensemble, ttl).await?;
        let mut open = self.open();
        // One session without a node is enough: each needs a connection.
        open.values_mut().for_each(|sessions| sessions.retain(|session| !session.is_idle()));
        open.entry(ttl).or_default().push(session.clone());
        Ok(session)
    }

    fn with_room(&self, ttl: Ttl) -> Option<Arc<Session>> {
        let open = self.open();
        let is_fit = |session: &&Arc<Session>| {
            let [has_ended, is_doubted] = [&session.has_ended, &session.is_doubted];
            !session.is_full()
                && ![has_ended, is_doubted].iter().any(|flag| flag.load(Ordering::Relaxed))
        };
        open.get(&ttl)?.iter().find(is_fit).cloned()
    }

    /// Returns all sessions. Forgets those that have ended, or that had no node for long: they expire.
    pub(super) fn sweep(&self) -> Vec<Arc<Session>> {
        let mut open = self.open();
        open.retain(|ttl, sessions| {
            sessions.retain(|session| {
                let was_used = session.proven().elapsed() < ttl.as_duration().max(IDLE_TIME);
                (was_used || !session.is_idle()) && !session.has_ended.load(Ordering::Relaxed)
            });
            !sessions.is_empty()
        });
        open.values().flatten().cloned().collect()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Ttl, Vec<Arc<Session>>>> {
        self.open.lock().expect("nothing panics while it holds this")
    }
}

/// Writes what changes nothing, through a quorum. A check that fails goes through one, too, unless the
/// connection has ended.
async fn wrote(connection: &Connection) -> Result<(), Failure> {
    match connection.check("/").await {
        Err(Failure::NoNode | Failure::Other(BackendError::Rejected(_)))
            if connection.is_usable() =>
        {
            Ok(())
        }
        written => written,
    }
}

/// Whether a server is alone: it lists no members. Then a write sets the full time of its session.
async fn is_alone(connection: &Connection) -> bool {
    let config = connection.answer(connection.client.get_config()).await;
    config.is_ok_and(|(config, _)| !String::from_utf8_lossy(&config).contains("server."))
}
