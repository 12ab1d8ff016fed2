//! The nodes of a client's own holders, and the task that deletes those whose leases have ended.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use futures_util::future::join_all;
use tokio::{join, task::JoinHandle, time::sleep};

use super::{
    client::{Shared, ZooKeeper},
    ensemble::Ensemble,
    failure::Failure,
    session::{Room, Session},
    view::Before,
};
use crate::{
    backend::{BackendError, Ownership},
    clock::Moment,
};

/// How often the task looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// The node of a holder, and its session. No other node ever has its path.
#[derive(Clone)]
pub(super) struct OwnNode {
    pub(super) room: Arc<Room>,
    /// The path of the node, which may not exist.
    pub(super) path: String,
    /// The path of the node that takes its place, by a request without an answer until now.
    pub(super) moves_to: Option<String>,
    /// The grant, if the holder was granted the lock.
    pub(super) grant: Option<Token>,
    /// The node before that of a waiter; `None` if the queue was not read since it went.
    pub(super) before: Option<Before>,
    /// Who deletes the node holds it: a release returns whether it was the one.
    pub(super) deletion: Arc<tokio::sync::Mutex<()>>,
    /// When the lease ends, or a waiter loses its place. From then on, the node is only deleted. The
    /// session lives longer.
    pub(super) until: Moment,
}

impl OwnNode {
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.room.session
    }
}

/// The nodes of a client's own holders.
#[derive(Default)]
pub(super) struct OwnNodes {
    nodes: Mutex<HashMap<(ResourceName, Holder), OwnNode>>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl OwnNodes {
    pub(super) fn get(&self, name: &ResourceName, holder: &Holder) -> Option<OwnNode> {
        self.nodes().get(&(name.clone(), holder.clone())).cloned()
    }

    /// Remembers a node, before the request that makes it is sent.
    pub(super) fn insert(&self, name: &ResourceName, holder: &Holder, own: OwnNode) {
        self.nodes().insert((name.clone(), holder.clone()), own);
    }

    /// Changes what is remembered of a holder. Returns whether anything is, and its time has not passed.
    pub(super) fn change(
        &self,
        name: &ResourceName,
        holder: &Holder,
        change: impl FnOnce(&mut OwnNode),
    ) -> bool {
        let mut nodes = self.nodes();
        let own = nodes.get_mut(&(name.clone(), holder.clone()));
        own.filter(|own| !own.until.has_passed()).map(change).is_some()
    }

    /// Ends a lease that was lost. The holder may have another one by now.
    pub(super) fn lose(&self, name: &ResourceName, ownership: &Ownership) {
        let now = Moment::now();
        self.change(name, &ownership.holder, |own| {
            if own.grant == Some(ownership.grant) {
                own.until = now;
            }
        });
    }

    /// Ends a lease, or the wait of a waiter. Returns the node.
    pub(super) fn end(&self, name: &ResourceName, holder: &Holder) -> Option<OwnNode> {
        let now = Moment::now();
        self.change(name, holder, |own| own.until = now);
        self.get(name, holder)
    }

    /// Forgets the node of a holder, unless it has another one by now.
    pub(super) fn forget(&self, name: &ResourceName, holder: &Holder, path: &str) {
        let key = (name.clone(), holder.clone());
        let mut nodes = self.nodes();
        if nodes.get(&key).is_some_and(|own| own.path == path) {
            nodes.remove(&key);
        }
    }

    /// Forgets a holder whose lock goes on without this client.
    pub(super) fn forget_holder(&self, holder: &Holder) {
        self.nodes().retain(|(_, other), _| other != holder);
    }

    fn forget_session(&self, session: &Arc<Session>) {
        self.nodes().retain(|_, own| !Arc::ptr_eq(own.session(), session));
    }

    /// Starts the task that deletes nodes, unless it runs.
    pub(super) fn keep(&self, shared: &Arc<Shared>, ensemble: &Ensemble) {
        let mut keeper = self.keeper();
        if keeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *keeper = Some(tokio::spawn(keep(Arc::downgrade(shared), ensemble.clone())));
        }
    }

    fn keeper(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.keeper.lock().expect("nothing panics while it holds this")
    }

    /// The holders whose leases have ended, and whose nodes nobody is deleting.
    fn ended(&self) -> Vec<(ResourceName, Holder, OwnNode)> {
        let nodes = self.nodes();
        let is_ended = |own: &OwnNode| own.until.has_passed() && own.deletion.try_lock().is_ok();
        let ended = nodes.iter().filter(|(_, own)| is_ended(own));
        ended.map(|((name, holder), own)| (name.clone(), holder.clone(), own.clone())).collect()
    }

    /// The sessions that have nodes.
    fn sessions(&self) -> Vec<Arc<Session>> {
        let nodes = self.nodes();
        let sessions: HashMap<_, _> =
            nodes.values().map(|own| (own.session().id(), own.session())).collect();
        sessions.into_values().cloned().collect()
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<(ResourceName, Holder), OwnNode>> {
        self.nodes.lock().expect("nothing panics while it holds this")
    }
}

/// Deletes nodes whose leases have ended, again and again until that is answered: their session goes
/// on. Makes connections again that were cut. Ends when no session is left.
async fn keep(shared: Weak<Shared>, ensemble: Ensemble) {
    loop {
        sleep(INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        {
            // Who remembers a node later finds no task, and starts another.
            let mut keeper = shared.own_nodes.keeper();
            if shared.sessions.sweep() && shared.own_nodes.nodes().is_empty() {
                *keeper = None;
                return;
            }
        }
        let zookeeper = ZooKeeper { ensemble: ensemble.clone(), shared };
        let own_nodes = &zookeeper.shared.own_nodes;
        let deletions = own_nodes.ended().into_iter().map(async |(name, holder, own)| {
            // The next round tries again.
            let _ = zookeeper.delete_ended(&name, &holder, &own).await;
        });
        let sessions = own_nodes.sessions();
        let mends = sessions.iter().map(|session| session.mend(&ensemble));
        join!(join_all(deletions), join_all(mends));
    }
}

impl ZooKeeper {
    /// Deletes a node whose time has passed. Without an answer for a ttl, its session is given up, which
    /// ends by itself then. A renewal of another lock moves that to another session.
    pub(super) async fn delete_ended(
        &self,
        name: &ResourceName,
        holder: &Holder,
        own: &OwnNode,
    ) -> Result<(), BackendError> {
        let (session, own_nodes) = (own.session(), &self.shared.own_nodes);
        let _deleting = own.deletion.lock().await;
        let deleting = async { self.delete_own(own).await.map_err(Failure::into) };
        let deleted = self.within(deleting).await;
        if deleted.is_ok() {
            own_nodes.forget(name, holder, &own.path);
        } else if (own.until + session.ttl.as_duration()).has_passed() {
            self.shared.sessions.forget(session);
            own_nodes.forget_session(session);
        }
        deleted.map(drop)
    }

    /// Deletes the node of a holder, and returns whether there was one.
    pub(super) async fn delete_own(&self, own: &OwnNode) -> Result<bool, Failure> {
        // It is sent behind the attempt that makes the node, over the same connection, or over a later
        // one: then the attempt is rejected.
        let connection = self.connected(Some(own)).await?;
        // If the node is gone, a late request that moves it comes too late.
        for path in [Some(&own.path), own.moves_to.as_ref()].into_iter().flatten() {
            match connection.answer(connection.client.delete(path, None)).await {
                Ok(()) => return Ok(true),
                Err(Failure::NoNode) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(false)
    }
}
