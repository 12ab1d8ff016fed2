//! Locks in ZooKeeper, as a backend.

use std::{pin::Pin, sync::Arc, time::Duration};

use fence::{Holder, ResourceName, Token};
use tokio::time::timeout;
use zookeeper_client::Acls;

use super::{
    ensemble::{Ensemble, SessionRequest},
    failure::Failure,
    names,
    open_sessions::OpenSessions,
    own_nodes::{OwnNode, OwnNodes, keep},
    paths::Paths,
    server::Server,
    session::{InUse, Purpose, Session, Usage},
    view::View,
    wakeups,
};
use crate::{
    InvalidUrl,
    backend::{
        Attempt, Backend, BackendError, BackendFuture, DEFAULT_ANSWER_TIMEOUT, HeldNames,
        Ownership, Status, Wakeups, answer_timeout, debug_by_address, token,
    },
    terms::Order,
    ttl::Ttl,
};

/// How many answers one method may wait for: an attempt that makes all nodes needs as many. A method
/// that needs more is repeated.
const LONGEST_METHOD: u32 = 13;

/// Locks in ZooKeeper.
#[derive(Clone)]
pub struct ZooKeeper {
    pub(super) ensemble: Ensemble,
    pub(super) shared: Arc<Shared>,
}

#[derive(Default)]
pub(super) struct Shared {
    pub(super) sessions: OpenSessions,
    pub(super) own_nodes: OwnNodes,
}

debug_by_address!(ZooKeeper);

impl ZooKeeper {
    /// Makes a client of the ZooKeeper at a URL. It connects when it is first used.
    ///
    /// The URL is `zookeeper://[USER:PASSWORD@]HOST[:PORT],HOST…[/ROOT]`, or begins with `zookeepers://`
    /// for encrypted connections. Name all members. The port is 2181 by default. The client connects to
    /// the first member that answers. With a root, a node that exists, all nodes of the locks are below
    /// it. All parts of a URL are percent-encoded.
    ///
    /// A user is one of ZooKeeper's scheme `digest`. All nodes that the client makes belong to the
    /// user, and no other user reads or writes their data. Without a user, everybody may. Against
    /// malice, keep the ids of holders secret: a client that knows one can release its lock.
    ///
    /// The section "ZooKeeper" of the README has the settings that name certificates.
    ///
    /// # Errors
    /// [`InvalidUrl`] if the URL can't be used, or names a file that can't be read.
    pub fn open(url: &str) -> Result<Self, InvalidUrl> {
        let ensemble = Ensemble::new(Server::open(url)?, DEFAULT_ANSWER_TIMEOUT);
        Ok(Self { ensemble, shared: Arc::default() })
    }

    /// Waits this long for each answer, instead of half a second: 1 millisecond at least, and 1 hour at
    /// most. It suits a ZooKeeper that is far away, or that has slow disks: take twice the time of an answer,
    /// or more. A lease whose ttl is not several times longer is lost with one lost reply.
    pub fn answer_within(self, limit: Duration) -> Self {
        Self { ensemble: self.ensemble.answer_within(answer_timeout(limit)), ..self }
    }

    pub(super) async fn within<T>(
        &self,
        method: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.answer_timeout() * LONGEST_METHOD;
        timeout(limit, method).await.unwrap_or_else(|_| Err(self.unavailable("no answer in time")))
    }

    pub(super) async fn session(
        &self,
        ttl: Ttl,
        usage: Usage,
        purpose: Purpose,
    ) -> Result<Arc<Session>, BackendError> {
        match usage {
            Usage::OneLock => Session::open(&self.ensemble, ttl, usage).await,
            Usage::Shared => self.shared.sessions.get(&self.ensemble, ttl, purpose).await,
        }
    }

    /// Remembers a node, before the request that makes it is sent. It is deleted when its lease ends.
    pub(super) fn remember(&self, name: &ResourceName, holder: &Holder, own: OwnNode) {
        let own_nodes = &self.shared.own_nodes;
        own_nodes.table().insert((name.clone(), holder.clone()), own);
        let (shared, ensemble) = (Arc::downgrade(&self.shared), self.ensemble.clone());
        own_nodes.keeper.start(|| keep(shared, ensemble));
    }

    pub(super) fn unavailable(&self, reason: &str) -> BackendError {
        BackendError::Unavailable(format!("{}: {reason}", self.address()).into())
    }

    pub(super) fn paths(&self, name: &ResourceName) -> Paths {
        Paths::new(&self.ensemble.server().root, name)
    }

    pub(super) fn access(&self) -> Acls<'static> {
        match self.ensemble.server().user {
            Some(_) => Acls::creator_all(),
            None => Acls::anyone_all(),
        }
    }

    /// Reads a lock, after everything that was changed until now.
    pub(super) async fn view(&self, paths: &Paths) -> Result<View, Failure> {
        View::read_synced(&*self.ensemble.reading().await?, paths).await
    }

    /// Returns a connection for requests of a holder: that of its node's session, or of the next one if
    /// that was given up. Waiters can't use these up. Without one, it is the connection that reads.
    pub(super) async fn connected<'a>(
        &self,
        own: Option<&'a OwnNode>,
    ) -> Result<InUse<'a>, Failure> {
        if let Some(own) = own {
            let connected = match own.session().connected(&self.ensemble).await {
                Err(Failure::Expired) => self.connected_to_next(own.session().ttl).await,
                connected => connected,
            };
            match connected {
                // The session has expired, and was not given up yet. Or no member gives a session this
                // time any more.
                Err(Failure::Expired | Failure::Shortened { .. })
                | Err(Failure::Other(BackendError::Invalid(_))) => {}
                connected => return connected,
            }
        }
        Ok(self.ensemble.reading().await?.into())
    }

    /// Returns the connection of the session to which the locks of one that was given up move.
    async fn connected_to_next(&self, ttl: Ttl) -> Result<InUse<'static>, Failure> {
        let next = self.shared.sessions.get(&self.ensemble, ttl, Purpose::Held).await;
        let next = next.map_err(Failure::Other)?;
        Ok(next.connected(&self.ensemble).await?.connection.clone().into())
    }

    /// Fails if the URL names a root that does not exist. No lock is held there, but none is free.
    pub(super) async fn check_root(&self) -> Result<(), Failure> {
        let root = &self.ensemble.server().root;
        if root.is_empty() {
            return Ok(());
        }
        let connection = self.ensemble.reading().await?;
        match connection.answer(connection.client.check_stat(root)).await? {
            Some(_) => Ok(()),
            None => Err(self.missing_root()),
        }
    }

    pub(super) fn missing_root(&self) -> Failure {
        let reason =
            format!("{}: the node {} does not exist", self.address(), self.ensemble.server().root);
        Failure::Other(BackendError::Rejected(reason.into()))
    }
}

impl Backend for ZooKeeper {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(self.within(self.acquire(name, holder, ttl, order, Usage::Shared)))
    }

    fn try_acquire_detachable<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(self.within(self.acquire(name, holder, ttl, order, Usage::OneLock)))
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(self.within(self.renew_ownership(name, ownership, ttl)))
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(self.within(self.reissue_token(name, ownership, above)))
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        _token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(self.within(self.release_holder(name, holder)))
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
            let view = self.view(&self.paths(name)).await?;
            let Some(owner) = view.owner() else {
                self.check_root().await?;
                return Ok(Status::FREE);
            };
            let ownership = Ownership { holder: owner.holder.clone(), grant: token(owner.grant)? };
            let queued = (view.queue.len() - 1).try_into().expect("a queue is short");
            Ok(Status::of_owner(view.token(owner)?, ownership, Some(owner.lasts), queued))
        }))
    }

    fn held_names(&self, prefix: &str) -> HeldNames {
        names::held(self.clone(), prefix)
    }

    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        // Its session ends after its time, unless another process moves the lock to its own session.
        self.shared.own_nodes.forget_where(|(_, holder)| *holder == ownership.holder);
        token
    }

    fn wait_for_releases(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.own_nodes.until_none_has_ended())
    }

    fn check_ttl(&self, ttl: Ttl) -> BackendFuture<'_, ()> {
        Box::pin(self.within(async move {
            self.ensemble.open_session(ttl, SessionRequest::Temporary).await.map(drop)
        }))
    }

    fn answer_timeout(&self) -> Duration {
        self.ensemble.answer_timeout
    }

    fn address(&self) -> String {
        self.ensemble.server().to_string()
    }
}
