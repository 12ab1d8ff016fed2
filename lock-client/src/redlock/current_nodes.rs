//! The nodes of the current epoch, as far as a client knows it.

use std::sync::{Arc, Mutex};

use super::{discovery::find_members, node_urls::NodeUrl, nodes::Nodes, patience::Patience};
use crate::{backend::BackendError, background::Background};

/// The nodes of the current epoch. The client starts with the nodes that its user has named, and
/// follows the changes of the members.
pub(super) struct CurrentNodes {
    named: Vec<NodeUrl>,
    nodes: Mutex<Arc<Nodes>>,
    /// Held while the client looks for a later epoch.
    following: tokio::sync::Mutex<()>,
    background: Background,
    patience: Patience,
}

impl CurrentNodes {
    pub(super) fn new(named: Vec<NodeUrl>, patience: Patience) -> Self {
        let background = Background::default();
        let nodes = Nodes::new(&named, None, patience, background.clone());
        Self {
            named,
            nodes: Mutex::new(Arc::new(nodes)),
            following: tokio::sync::Mutex::default(),
            background,
            patience,
        }
    }

    /// Makes another client of the named nodes, not connected yet.
    pub(super) fn with_patience(&self, patience: Patience) -> Self {
        Self::new(self.named.clone(), patience)
    }

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// The nodes for one step. It must ask no others: what it asks for holds in one epoch only.
    pub(super) fn get(&self) -> Arc<Nodes> {
        self.nodes.lock().expect("nothing panics while it holds this lock").clone()
    }

    /// Runs a step. If it fails because the members have changed, runs it once more with the
    /// members of the new epoch.
    pub(super) async fn run<T, F: Future<Output = Result<T, BackendError>>>(
        &self,
        step: impl Fn(Arc<Nodes>) -> F,
    ) -> Result<T, BackendError> {
        let mut nodes = self.get();
        nodes.learn_epoch().await;
        if nodes.epoch().is_none() && nodes.is_outdated() {
            nodes = self.follow(&nodes).await.unwrap_or(nodes);
        }
        match step(nodes.clone()).await {
            Err(error) if nodes.is_outdated() => match self.follow(&nodes).await {
                Some(later) => step(later).await,
                None => Err(error),
            },
            result => result,
        }
    }

    /// Looks for a later epoch than that of these nodes, and returns its nodes.
    ///
    /// An epoch is current once a majority of its members votes in it. Until then, a step in it
    /// could not succeed.
    pub(super) async fn follow(&self, nodes: &Arc<Nodes>) -> Option<Arc<Nodes>> {
        let _following = self.following.lock().await;
        let known = self.get();
        if !Arc::ptr_eq(&known, nodes) {
            return Some(known);
        }
        let last: Vec<_> = nodes.urls().cloned().collect();
        let cluster = nodes.epoch().map(|epoch| epoch.cluster.as_str());
        let finding = find_members(&self.named, &last, cluster, self.patience.0);
        let (current, members) = finding.await?;
        if nodes.epoch().is_some_and(|epoch| epoch.number >= current.number) {
            return None;
        }
        let background = self.background.clone();
        let later = Arc::new(Nodes::new(&members, Some(current), self.patience, background));
        *self.nodes.lock().expect("nothing panics while it holds this lock") = later.clone();
        Some(later)
    }
}
