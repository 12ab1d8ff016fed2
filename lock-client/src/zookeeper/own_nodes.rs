//! The nodes of a client's own holders, and the task that deletes those whose leases have ended.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use fence::{Holder, ResourceName};
use futures_util::future::join_all;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    client::{Shared, ZooKeeper},
    ensemble::Ensemble,
    session::{Room, Session},
    view::Predecessor,
};
use crate::{backend::BackendError, clock::Moment, ttl::Ttl};

/// How often the task looks.
const INTERVAL: Duration = Duration::from_millis(250);

/// The node of a holder, and its session.
#[derive(Clone)]
pub(super) struct OwnNode {
    pub(super) room: Arc<Room>,
    /// The path of the node, which may not exist.
    pub(super) path: String,
    /// Whether the node has been seen.
    pub(super) is_placed: bool,
    /// Whether the holder was granted the lock.
    pub(super) is_granted: bool,
    /// Whether no lock of this client but this one has the session.
    pub(super) is_alone: bool,
    /// Whether the holder may get another node, by a request that was not answered.
    pub(super) may_have_another: bool,
    /// The place before the node when the whole queue was last read; `None` if it was not read, or
    /// showed the holder as the owner.
    pub(super) predecessor: Option<Predecessor>,
    /// When the node is deleted, unless its lease is renewed or its waiter tries again. The session
    /// lives longer.
    pub(super) until: Moment,
    /// A request that makes or deletes the node holds it: a late deletion must not meet a new node.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
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
    pub(super) fn remember(&self, name: &ResourceName, holder: &Holder, own_node: OwnNode) {
        self.nodes().insert((name.clone(), holder.clone()), own_node);
    }

    /// Changes what is remembered of a holder, if anything is.
    pub(super) fn change(
        &self,
        name: &ResourceName,
        holder: &Holder,
        change: impl FnOnce(&mut OwnNode),
    ) {
        if let Some(own_node) = self.nodes().get_mut(&(name.clone(), holder.clone())) {
            change(own_node);
        }
    }

    /// Remembers that the lease lasts, or that the waiter waits, for another ttl.
    pub(super) fn prolong(&self, name: &ResourceName, holder: &Holder, ttl: Ttl) {
        self.change(name, holder, |own_node| own_node.until = Moment::now() + ttl.as_duration());
    }

    pub(super) fn forget(&self, name: &ResourceName, holder: &Holder) {
        self.nodes().remove(&(name.clone(), holder.clone()));
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

    /// The holders whose leases have ended.
    fn ended(&self) -> Vec<(ResourceName, Holder, OwnNode)> {
        let nodes = self.nodes();
        let ended = nodes.iter().filter(|(_, own_node)| own_node.until.has_passed());
        ended.map(|((name, holder), own)| (name.clone(), holder.clone(), own.clone())).collect()
    }

    fn sessions_of_one_lock(&self) -> Vec<Arc<Session>> {
        let nodes = self.nodes();
        let alone = nodes.values().filter(|own_node| own_node.is_alone);
        alone.map(|own_node| own_node.room.session.clone()).collect()
    }

    fn is_empty(&self) -> bool {
        self.nodes().is_empty()
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
        let sessions = shared.sessions.sweep();
        {
            // Who remembers a node later finds no task, and starts another.
            let mut keeper = shared.own_nodes.keeper();
            if sessions.is_empty() && shared.own_nodes.is_empty() {
                *keeper = None;
                return;
            }
        }
        let zookeeper = ZooKeeper { ensemble: ensemble.clone(), shared };
        let ended = zookeeper.shared.own_nodes.ended();
        let deletions = ended.into_iter().map(async |(name, holder, own_node)| {
            let _turn = own_node.turn.lock().await;
            let present = zookeeper.shared.own_nodes.get(&name, &holder);
            if present.is_none_or(|present| !present.until.has_passed()) {
                return;
            }
            let released = zookeeper.within(zookeeper.release_holder(&name, &holder)).await;
            if let Err(BackendError::Unavailable(_)) = released {
                zookeeper.give_up_if_silent(&name, &holder, &own_node);
            }
        });
        join_all(deletions).await;
        let alone = zookeeper.shared.own_nodes.sessions_of_one_lock();
        let mends = sessions.iter().chain(&alone).map(|session| session.mend(&ensemble));
        join_all(mends).await;
    }
}

impl ZooKeeper {
    /// Gives up the session of a node whose deletion had no answer for a ttl. It ends by itself then.
    fn give_up_if_silent(&self, name: &ResourceName, holder: &Holder, own_node: &OwnNode) {
        let session = &own_node.room.session;
        if (own_node.until + session.ttl.as_duration()).has_passed() {
            session.give_up();
            self.shared.own_nodes.forget(name, holder);
        }
    }
}
