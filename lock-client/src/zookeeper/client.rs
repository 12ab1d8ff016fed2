//! Locks in ZooKeeper, as a backend.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use tokio::{sync::Semaphore, time::timeout, try_join};

use super::{
    connection::Connection,
    ensemble::Ensemble,
    failure::Failure,
    messages::{Access, Kind, Request},
    nodes::Nodes,
    server::{InvalidZooKeeperUrl, Server},
    session::Session,
    view::{Place, View, token},
    wakeups,
};
use crate::{
    backend::{
        Attempt, Backend, BackendError, BackendFuture, Contention, DEFAULT_ANSWER_TIMEOUT,
        HeldLock, Ownership, Status, Wakeups,
    },
    clock::Moment,
    terms::Order,
    ttl::Ttl,
};

/// How many answers one method may wait for. A method that needs more is repeated.
const LONGEST_METHOD: u32 = 8;
/// How many methods connect sessions at once. Each has two connections at most, and a member allows 60
/// to each address by default.
const CONNECTING_METHODS: usize = 16;
/// The longest time for which a waiter in the queue is silent.
const LONGEST_NAP: Duration = Duration::from_secs(5);

/// Locks in ZooKeeper.
#[derive(Clone)]
pub struct ZooKeeper {
    pub(super) ensemble: Ensemble,
    claims: Arc<Mutex<HashMap<(ResourceName, Holder), Claim>>>,
    connecting: Arc<Semaphore>,
}

/// What a holder may have in ZooKeeper.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) session: Session,
    /// The node of the holder, which may not exist.
    pub(super) path: String,
}

impl From<&Place> for Claim {
    fn from(place: &Place) -> Self {
        Self { session: place.session.clone(), path: place.path.clone() }
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeper")
            .field("server", &self.address())
            .field("answer_timeout", &self.answer_timeout())
            .finish_non_exhaustive()
    }
}

impl ZooKeeper {
    /// Makes a client of the ZooKeeper at a URL. It connects when it is first used.
    ///
    /// The URL is `zookeeper://[USER:PASSWORD@]HOST[:PORT],HOST…[/ROOT]`. Name all members. The port is
    /// 2181 by default. The client connects to the first member that answers. With a root, a node that
    /// exists, all nodes of the locks are below it. All parts of a URL are percent-encoded.
    ///
    /// A user is one of ZooKeeper's scheme `digest`. All nodes that the client makes belong to the
    /// user: no other user reads or changes them. Without a user, everybody may. Connections are not
    /// encrypted.
    ///
    /// # Errors
    /// [`InvalidZooKeeperUrl`] if the URL can't be used.
    pub fn open(url: &str) -> Result<Self, InvalidZooKeeperUrl> {
        let ensemble = Ensemble::new(Server::parse(url)?, DEFAULT_ANSWER_TIMEOUT);
        let connecting = Arc::new(Semaphore::new(CONNECTING_METHODS));
        Ok(Self { ensemble, claims: Arc::default(), connecting })
    }

    /// Waits this long for each answer of ZooKeeper, instead of half a second. It suits a ZooKeeper that
    /// is far away, or that has slow disks: take twice the time of an answer, or more. A lease whose ttl
    /// is not several times longer is lost with one lost reply.
    ///
    /// It is 1 millisecond at least, and 1 hour at most.
    pub fn answer_within(self, limit: Duration) -> Self {
        let answer_timeout = limit.clamp(Duration::from_millis(1), Duration::from_secs(3600));
        Self { ensemble: self.ensemble.answer_within(answer_timeout), ..self }
    }

    /// Limits the time of a method.
    async fn within<T>(
        &self,
        method: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.answer_timeout() * LONGEST_METHOD;
        timeout(limit, method).await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    /// Limits the time of a method that connects sessions, and their number.
    async fn connecting<T>(
        &self,
        method: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let in_turn = async {
            let _turn = self.connecting.acquire().await.expect("nothing closes it");
            method.await
        };
        self.within(in_turn).await
    }

    pub(super) fn unavailable(&self, reason: &str) -> BackendError {
        BackendError::Unavailable(format!("{}: {reason}", self.address()).into())
    }

    pub(super) fn nodes(&self, name: &ResourceName) -> Nodes {
        Nodes::new(&self.ensemble.server().root, name)
    }

    /// Who may use the nodes that this client makes.
    pub(super) fn access(&self) -> Access {
        match self.ensemble.server().user {
            Some(_) => Access::Creator,
            None => Access::Everybody,
        }
    }

    /// Reads a lock, after everything that was changed until now.
    pub(super) async fn look(&self, nodes: &Nodes) -> Result<View, Failure> {
        let connection = self.ensemble.reading().await?;
        // The member may be behind the leader.
        let synced = connection.send(Request::sync(&nodes.queue()));
        // The reads are behind it on the same connection.
        let (_, view) = try_join!(synced, View::read(&connection, nodes))?;
        Ok(view)
    }

    pub(super) fn claim(&self, name: &ResourceName, holder: &Holder) -> Option<Claim> {
        self.claims().get(&(name.clone(), holder.clone())).cloned()
    }

    pub(super) fn set_claim(&self, name: &ResourceName, holder: &Holder, claim: Claim) {
        self.claims().insert((name.clone(), holder.clone()), claim);
    }

    pub(super) fn forget_claim(&self, name: &ResourceName, holder: &Holder) {
        self.claims().remove(&(name.clone(), holder.clone()));
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<(ResourceName, Holder), Claim>> {
        self.claims.lock().expect("nothing panics while it holds this")
    }

    async fn acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        let (nodes, asked) = (self.nodes(name), Moment::now());
        // 1. Look first: in no order, an attempt that can't succeed makes no session.
        let seen = self.look(&nodes).await?;
        let placed = seen.place(holder).map(Claim::from);
        let has_place = placed.is_some();
        let claim = placed.or_else(|| self.claim(name, holder));
        if let (Order::Unordered, None, Some(owner)) = (order, &claim, seen.owner()) {
            return Ok(busy(owner, None, ttl));
        }
        // 2. Go on with the session of an earlier attempt, or make one. Either sets its full time. It is
        // remembered before there is a node, so that a release ends it.
        let resumed = match &claim {
            Some(claim) if has_place => self.revive(claim).await,
            Some(claim) => self.ensemble.resume(&claim.session).await,
            None => Ok(self.ensemble.open_session(ttl).await?),
        };
        let connection = match resumed {
            Err(Failure::Expired) => {
                self.forget_claim(name, holder);
                return Err(self.unavailable("the session of an earlier attempt has expired"));
            }
            resumed => resumed?,
        };
        let session = connection.session.clone();
        let claim = claim.unwrap_or_else(|| Claim { path: nodes.place(holder), session });
        self.set_claim(name, holder, claim);
        // 3. Queue.
        if !has_place {
            self.queue(&connection, &nodes, holder).await?;
        }
        // 4. See whose place is the oldest. Only then the offset is read: an owner before this one may
        // have raised it until its own place was deleted.
        let view = View::read(&connection, &nodes).await?;
        let own = view.place(holder).filter(|own| own.session.id == connection.session.id);
        let (Some(own), Some(position)) = (own, view.position(holder)) else {
            return Err(self.unavailable("the holder's node was deleted, or moved meanwhile"));
        };
        match (position, view.owner()) {
            (0, _) => {
                if own.session.timeout_ms < ttl.as_millis() {
                    self.move_to_longer_session(name, &connection, own, ttl).await?;
                }
                let ownership = Ownership { holder: holder.clone(), grant: token(own.grant)? };
                Ok(Attempt::Granted { token: view.token(own)?, ownership, asked })
            }
            (_, None) => unreachable!("the own place is in the queue"),
            (older, Some(owner)) if order == Order::Fair => {
                // The oldest place is no waiter's.
                Ok(busy(owner, (older - 1).try_into().ok(), ttl))
            }
            (_, Some(owner)) => {
                connection.close_session().await?;
                self.forget_claim(name, holder);
                Ok(busy(owner, None, ttl))
            }
        }
    }

    /// Makes the node of a holder, and those above it if they don't exist.
    async fn queue(
        &self,
        connection: &Connection,
        nodes: &Nodes,
        holder: &Holder,
    ) -> Result<(), Failure> {
        let (path, record) = (nodes.place(holder), connection.session.record());
        let create = Request::create(&path, &record, Kind::Ephemeral, self.access());
        loop {
            match connection.send(create.clone()).await {
                // An earlier attempt may have made it.
                Ok(_) | Err(Failure::NodeExists) => return Ok(()),
                // An empty container may be deleted at any moment.
                Err(Failure::NoNode) => self.make_parents(connection, nodes).await?,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Makes the nodes above those of a lock, and its container.
    async fn make_parents(&self, connection: &Connection, nodes: &Nodes) -> Result<(), Failure> {
        let root = &self.ensemble.server().root;
        let persistent = nodes.parents().map(|path| (path, Kind::Persistent));
        let container = [(nodes.queue(), Kind::Container)];
        for (path, kind) in persistent.into_iter().chain(container) {
            let create = Request::create(&path, "", kind, self.access());
            match connection.send(create).await {
                Ok(_) | Err(Failure::NodeExists) => {}
                Err(Failure::NoNode) if !root.is_empty() => {
                    let reason = format!("{}: the node {root} does not exist", self.address());
                    return Err(Failure::Other(BackendError::Rejected(reason.into())));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

/// The answer to a holder that does not own the lock.
fn busy(owner: &Place, ahead: Option<u64>, ttl: Ttl) -> Attempt {
    // ZooKeeper does not show how long a session has been silent.
    let remaining = Some(Duration::from_millis(owner.session.timeout_ms));
    let nap = ahead.map(|_| (ttl.as_duration() / 3).min(LONGEST_NAP));
    Attempt::Busy(Contention { remaining, ahead, nap })
}

impl Backend for ZooKeeper {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(self.connecting(self.acquire(name, holder, ttl, order)))
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(self.connecting(self.keep(name, ownership, ttl)))
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(self.within(self.raise(name, ownership, above)))
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(self.connecting(self.leave(name, holder)))
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        order: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(self.within(wakeups::subscribe(self, name, holder, order)))
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(self.within(async move {
            let view = self.look(&self.nodes(name)).await?;
            let Some(owner) = view.owner() else {
                return Ok(Status { held: None, last_token: None, queued: 0 });
            };
            let token = view.token(owner)?;
            let grant = self::token(owner.grant)?;
            let held = HeldLock {
                token,
                ownership: Ownership { holder: owner.holder.clone(), grant },
                remaining: Some(Duration::from_millis(owner.session.timeout_ms)),
                since_ms: None,
                label: String::new(),
                nodes: None,
            };
            let queued = (view.queue.len() - 1).try_into().expect("a queue is short");
            Ok(Status { held: Some(held), last_token: Some(token.as_u64()), queued })
        }))
    }

    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        // The process that adopts the lock finds the session in the owner's node.
        self.claims().retain(|(_, holder), _| *holder != ownership.holder);
        token
    }

    fn answer_timeout(&self) -> Duration {
        self.ensemble.answer_timeout
    }

    fn address(&self) -> String {
        self.ensemble.server().to_string()
    }
}
