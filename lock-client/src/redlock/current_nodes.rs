//! The nodes of the current epoch, as far as a client knows it.

use std::sync::Arc;

use tokio::{sync::watch, time::timeout};
use tokio_util::task::TaskTracker;

use super::{
    discovery::find_members, epoch::Epoch, node_urls::NodeUrl, nodes::Nodes, patience::Patience,
};
use crate::{Moment, backend::BackendError};

/// The nodes of the current epoch. The client starts with the nodes that its user has named, and
/// follows the changes of the members.
pub(super) struct CurrentNodes {
    named: Vec<NodeUrl>,
    nodes: watch::Sender<Arc<Nodes>>,
    /// Held while the client searches for a later epoch. It has the beginning of the last search
    /// that ended.
    following: tokio::sync::Mutex<Option<Moment>>,
    background: TaskTracker,
    patience: Patience,
}

impl CurrentNodes {
    pub(super) fn new(named: Vec<NodeUrl>, patience: Patience) -> Self {
        let background = TaskTracker::new();
        let nodes = Nodes::new(&named, None, patience, background.clone());
        Self {
            named,
            nodes: watch::Sender::new(Arc::new(nodes)),
            following: tokio::sync::Mutex::default(),
            background,
            patience,
        }
    }

    /// Makes another client of the named nodes, not connected yet.
    pub(super) fn with_patience(&self, patience: Patience) -> Self {
        Self::new(self.named.clone(), patience)
    }

    pub(super) fn background(&self) -> &TaskTracker {
        &self.background
    }

    /// The nodes for one step. It must ask no others: what it asks for holds in one epoch only.
    pub(super) fn get(&self) -> Arc<Nodes> {
        self.nodes.borrow().clone()
    }

    /// The nodes, and each change of them from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Nodes>> {
        self.nodes.subscribe()
    }

    /// Runs a step. If it fails because the members have changed, runs it once more with the
    /// members of the new epoch.
    pub(super) async fn run<T, F: Future<Output = Result<T, BackendError>>>(
        self: &Arc<Self>,
        step: impl Fn(Arc<Nodes>) -> F,
    ) -> Result<T, BackendError> {
        let mut nodes = self.get();
        nodes.learn_epoch().await;
        if nodes.electorate().epoch().is_none() && nodes.electorate().is_outdated() {
            match self.follow(&nodes).await {
                Some(later) => nodes = later,
                // Nothing has changed since this search. The step returns why it fails.
                None => return step(nodes).await,
            }
        }
        match step(nodes.clone()).await {
            Err(error) if nodes.electorate().is_outdated() => match self.follow(&nodes).await {
                Some(later) => step(later).await,
                None => Err(error),
            },
            result => result,
        }
    }

    /// Searches for a later epoch than that of these nodes, and returns its nodes. The search
    /// continues if this caller stops waiting. Otherwise callers that wait for less than a search
    /// takes would never follow.
    async fn follow(self: &Arc<Self>, nodes: &Arc<Nodes>) -> Option<Arc<Nodes>> {
        let (current, nodes) = (self.clone(), nodes.clone());
        let following = async move { current.follow_in_turn(&nodes).await };
        // It ends early only with the runtime.
        self.background.spawn(following).await.ok().flatten()
    }

    /// Searches for a later epoch than that of these nodes, one search at a time. It takes the time
    /// of two searches at most: steps that failed before a search began share its result.
    ///
    /// An epoch is current once a majority of its members votes in it. Until then, a step in it
    /// could not succeed.
    async fn follow_in_turn(&self, nodes: &Arc<Nodes>) -> Option<Arc<Nodes>> {
        let failed = Moment::now();
        let mut last_search = self.following.lock().await;
        let known = self.get();
        if !Arc::ptr_eq(&known, nodes) {
            return Some(known);
        }
        if last_search.is_some_and(|began| began > failed) {
            return None;
        }
        let began = Moment::now();
        let found = self.search(nodes).await;
        *last_search = Some(began);
        let (current, members) = found?;
        if let Some(epoch) = nodes.electorate().epoch() {
            if epoch.change == current.change {
                nodes.electorate().confirm();
                return None;
            }
            // Of two changes for one epoch, a majority votes in that of the search.
            if epoch.number > current.number {
                return None;
            }
        }
        let background = self.background.clone();
        let later = Arc::new(Nodes::new(&members, Some(current), self.patience, background));
        self.nodes.send_replace(later.clone());
        Some(later)
    }

    /// Searches for the current epoch, and for its members.
    async fn search(&self, nodes: &Nodes) -> Option<(Epoch, Vec<NodeUrl>)> {
        let last: Vec<_> = nodes.urls().cloned().collect();
        let cluster = nodes.electorate().epoch().map(|epoch| epoch.cluster.as_str());
        let finding = find_members(&self.named, &last, cluster, self.patience.0);
        // Without a majority, it would wait for each server, also for one that hangs.
        timeout(self.patience.searching(), finding).await.ok().flatten()
    }
}
