//! The nodes of a client's own holders, and the task that deletes those whose leases have ended.
//!
//! A lease that has ended stays so: what is remembered of it changes no more, until its node is deleted.

use std::sync::{Arc, Weak};

use fence::{Holder, ResourceName, Token};
use tokio::time::sleep;

use super::{
    client::{Shared, ZooKeeper},
    ensemble::Ensemble,
    session::{Room, Session},
    view::Before,
};
use crate::{
    backend::Ownership,
    clock::Moment,
    holders::{Holders, Kept, SWEEP_INTERVAL},
};

/// The node of a holder, and its session. No other node ever has its path.
#[derive(Clone)]
pub(super) struct OwnNode {
    pub(super) room: Arc<Room>,
    /// The path of the node, which may not exist.
    pub(super) path: String,
    /// The path of the node that takes its place, by a request without an answer until now.
    pub(super) moves_to: Option<String>,
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

impl Kept for OwnNode {
    fn until(&self) -> Moment {
        self.until
    }
}

pub(super) type OwnNodes = Holders<(ResourceName, Holder), OwnNode>;

impl OwnNodes {
    pub(super) fn find(&self, name: &ResourceName, holder: &Holder) -> Option<OwnNode> {
        self.get(&(name.clone(), holder.clone()))
    }

    /// Changes what is remembered of a holder. Returns whether anything is, and its time has not passed.
    pub(super) fn change(
        &self,
        name: &ResourceName,
        holder: &Holder,
        change: impl FnOnce(&mut OwnNode),
    ) -> bool {
        self.change_live(&(name.clone(), holder.clone()), change).is_some()
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

    pub(super) fn end(&self, name: &ResourceName, holder: &Holder) -> Option<OwnNode> {
        let now = Moment::now();
        self.change(name, holder, |own| own.until = now);
        self.find(name, holder)
    }

    /// Forgets the node of a holder, unless it has another one by now.
    pub(super) fn forget(&self, name: &ResourceName, holder: &Holder, path: &str) {
        self.forget_if(&(name.clone(), holder.clone()), |own| own.path == path);
    }
}

/// Deletes nodes whose leases have ended, again and again until that is answered: their session goes
/// on. Ends when no session is left.
pub(super) async fn keep(shared: Weak<Shared>, ensemble: Ensemble) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        let own_nodes = &shared.own_nodes;
        if own_nodes.keeper.end_if(|| shared.sessions.sweep() && own_nodes.table().is_empty()) {
            return;
        }
        let zookeeper = ZooKeeper { ensemble: ensemble.clone(), shared };
        for ((name, holder), own) in zookeeper.shared.own_nodes.ended() {
            // Somebody is deleting it.
            if own.deletion.try_lock().is_err() {
                continue;
            }
            let zookeeper = zookeeper.clone();
            // One that hangs holds up no other. The next round tries again.
            tokio::spawn(async move { zookeeper.delete_ended(&name, &holder, &own).await });
        }
    }
}
