//! The nodes of a client's own holders, and the task that deletes those whose leases have ended.
//!
//! A lease that has ended stays so: what is remembered of it changes no more, until its node is deleted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use tokio::{sync::Notify, task::JoinHandle, time::sleep};

use super::{
    client::{Shared, ZooKeeper},
    ensemble::Ensemble,
    session::{Room, Session},
    view::Before,
};
use crate::{backend::Ownership, clock::Moment};

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
    /// Held while the node is being deleted: a release returns whether it deleted the node.
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
    /// Notified when a node was deleted.
    forgotten: Notify,
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
            self.forgotten.notify_waiters();
        }
    }

    /// Waits until all nodes whose leases have ended are deleted, or expire with their sessions.
    pub(super) async fn until_none_has_ended(&self) {
        loop {
            let forgotten = self.forgotten.notified();
            if !self.nodes().values().any(|own| own.until.has_passed()) {
                return;
            }
            forgotten.await;
        }
    }

    /// Forgets a holder whose lock goes on without this client.
    pub(super) fn forget_holder(&self, holder: &Holder) {
        self.nodes().retain(|(_, other), _| other != holder);
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

    fn nodes(&self) -> MutexGuard<'_, HashMap<(ResourceName, Holder), OwnNode>> {
        self.nodes.lock().expect("nothing panics while it holds this")
    }
}

/// Deletes nodes whose leases have ended, again and again until that is answered: their session goes
/// on. Ends when no session is left.
async fn keep(shared: Weak<Shared>, ensemble: Ensemble) {
    loop {
        sleep(INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        {
            // A client that remembers a node later finds no task, and starts another.
            let mut keeper = shared.own_nodes.keeper();
            if shared.sessions.sweep() && shared.own_nodes.nodes().is_empty() {
                *keeper = None;
                return;
            }
        }
        let zookeeper = ZooKeeper { ensemble: ensemble.clone(), shared };
        for (name, holder, own) in zookeeper.shared.own_nodes.ended() {
            let zookeeper = zookeeper.clone();
            // One that hangs holds up no other. The next round tries again.
            tokio::spawn(async move { zookeeper.delete_ended(&name, &holder, &own).await });
        }
    }
}
