//! The nodes of a client's own holders, as the client remembers them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use fence::{Holder, ResourceName};

use super::{
    session::Session,
    view::{Place, Predecessor},
};
use crate::clock::Moment;

/// How many may be remembered before the first look for sessions that have ended.
const FIRST_SWEEP: usize = 64;

/// The node of a holder, and its session.
#[derive(Clone, Debug)]
pub(super) struct OwnNode {
    pub(super) session: Session,
    /// The path of the node, which may not exist.
    pub(super) path: String,
    /// The place before the node when the whole queue was last read; `None` if it was not read, or
    /// showed the holder as the owner.
    pub(super) predecessor: Option<Predecessor>,
    /// Whether the holder may get another node, in another session, by a request that is under way: one
    /// of this client without an answer, or one of another client that has the handle.
    pub(super) may_get_another: bool,
}

impl OwnNode {
    /// A node that this client makes for a new holder, which no other client knows.
    pub(super) fn new(session: Session, path: String) -> Self {
        Self { session, path, predecessor: None, may_get_another: false }
    }
}

/// A node that was found.
impl From<&Place> for OwnNode {
    fn from(place: &Place) -> Self {
        let own_node = Self::new(place.session.clone(), place.path.clone());
        Self { may_get_another: true, ..own_node }
    }
}

/// The nodes of a client's own holders.
#[derive(Default)]
pub(super) struct OwnNodes(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// The nodes, and when each was last remembered.
    nodes: HashMap<(ResourceName, Holder), (OwnNode, Moment)>,
    /// How many nodes there may be before the next sweep.
    sweep_above: usize,
}

impl OwnNodes {
    pub(super) fn get(&self, name: &ResourceName, holder: &Holder) -> Option<OwnNode> {
        let remembered = self.remembered();
        remembered.nodes.get(&(name.clone(), holder.clone())).map(|(own_node, _)| own_node.clone())
    }

    /// Remembers a node whose session has just been connected.
    ///
    /// Forgets those whose sessions have had no connection for their time: they have ended, unless
    /// ZooKeeper was down. Nobody releases a holder for so long, and a release that comes nevertheless
    /// finds the session in the holder's node.
    pub(super) fn remember(&self, name: &ResourceName, holder: &Holder, mut own_node: OwnNode) {
        let mut remembered = self.remembered();
        let Remembered { nodes, sweep_above } = &mut *remembered;
        if nodes.len() > *sweep_above {
            nodes.retain(|_, (own_node, connected)| {
                connected.elapsed() < Duration::from_millis(own_node.session.timeout_ms)
            });
            // So that each node is looked at twice, in the mean.
            *sweep_above = FIRST_SWEEP.max(2 * nodes.len());
        }
        let key = (name.clone(), holder.clone());
        if let Some((earlier, _)) = nodes.get(&key)
            && earlier.session.id == own_node.session.id
        {
            // A request may have been sent meanwhile.
            own_node.may_get_another |= earlier.may_get_another;
        }
        nodes.insert(key, (own_node, Moment::now()));
    }

    /// Changes what is remembered of a holder, if anything is.
    pub(super) fn change(
        &self,
        name: &ResourceName,
        holder: &Holder,
        change: impl FnOnce(&mut OwnNode),
    ) {
        let mut remembered = self.remembered();
        if let Some((own_node, _)) = remembered.nodes.get_mut(&(name.clone(), holder.clone())) {
            change(own_node);
        }
    }

    pub(super) fn forget(&self, name: &ResourceName, holder: &Holder) {
        self.remembered().nodes.remove(&(name.clone(), holder.clone()));
    }

    /// Forgets the nodes of a holder, whatever the lock.
    pub(super) fn forget_holder(&self, left: &Holder) {
        self.remembered().nodes.retain(|(_, holder), _| holder != left);
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    fn node(timeout_ms: u64) -> OwnNode {
        let session = Session { id: 7, password: Vec::new(), timeout_ms };
        OwnNode::new(session, String::new())
    }

    /// A release that fails, and is not repeated, leaves its holder behind.
    #[test]
    fn holders_whose_sessions_have_ended_are_forgotten() {
        let (own_nodes, name) = (OwnNodes::default(), "r".parse().unwrap());
        let [kept, left] = [60_000, 1].map(|timeout_ms| {
            let holders: Vec<_> = (0..1_000).map(|_| Holder::random()).collect();
            for holder in &holders {
                own_nodes.remember(&name, holder, node(timeout_ms));
            }
            holders
        });
        sleep(Duration::from_millis(2));
        for _ in 0..2_000 {
            own_nodes.remember(&name, &Holder::random(), node(1));
        }
        assert!(kept.iter().all(|holder| own_nodes.get(&name, holder).is_some()));
        assert!(left.iter().all(|holder| own_nodes.get(&name, holder).is_none()));
    }
}
