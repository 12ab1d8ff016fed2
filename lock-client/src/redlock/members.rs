//! The members of the cluster, as far as a client knows them: a roster, and the servers of its seats.
//!
//! A client starts by finding them. When a node rejects the roster that a step names, the client finds
//! the members again, and repeats the step.

mod search;

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};
use tokio_util::task::TaskTracker;

use self::search::{Failed, Search};
use super::{node_urls::NodeUrl, nodes::Nodes, patience::Patience};
use crate::{Moment, backend::BackendError};

/// How long after a search the next one begins that no step waits for: each one connects anew.
const SEARCH_PAUSE: Duration = Duration::from_secs(5);

/// The members of the cluster, as far as a client knows them.
pub(super) struct Members {
    named: Vec<NodeUrl>,
    /// `None` until they are found.
    nodes: watch::Sender<Option<Arc<Nodes>>>,
    /// Held by a search: there is one at a time.
    search: tokio::sync::Mutex<Search>,
    background: TaskTracker,
    patience: Patience,
}

impl Members {
    pub(super) fn new(named: Vec<NodeUrl>, patience: Patience) -> Self {
        Self {
            named,
            nodes: watch::Sender::new(None),
            search: tokio::sync::Mutex::default(),
            background: TaskTracker::new(),
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

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// The addresses of the members, or of the nodes that were named.
    pub(super) fn addresses(&self) -> String {
        let named = || self.named.iter().map(|url| url.address.as_str()).collect::<Vec<_>>();
        let nodes = self.nodes.borrow();
        nodes.as_ref().map_or_else(|| named().join(", "), |nodes| nodes.addresses())
    }

    /// The nodes, and each change of them from now on.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
    ) -> Result<watch::Receiver<Option<Arc<Nodes>>>, BackendError> {
        self.nodes().await?;
        Ok(self.nodes.subscribe())
    }

    /// Runs a step. If it fails because the members have changed, runs it once more with the new ones.
    pub(super) async fn run<T, F: Future<Output = Result<T, BackendError>>>(
        self: &Arc<Self>,
        step: impl Fn(Arc<Nodes>) -> F,
    ) -> Result<T, BackendError> {
        let nodes = self.nodes().await?;
        match step(nodes.clone()).await {
            // A request that is wrong would be so with other members, too.
            Err(error @ BackendError::Invalid(_)) => Err(error),
            Err(error) if nodes.is_outdated() => match self.find_others(Some(nodes)).await {
                Ok(Some(others)) => step(others).await,
                Err(failed) if failed.is_rejected => {
                    Err(BackendError::Unavailable(failed.reason.into()))
                }
                _ => Err(error),
            },
            result => {
                if nodes.is_misplaced() {
                    self.correct_places(nodes);
                }
                result
            }
        }
    }

    /// Checks the connections to the nodes, and makes lost ones again.
    pub(super) fn check_connections(&self) {
        if let Some(nodes) = &*self.nodes.borrow() {
            nodes.check_connections();
        }
    }

    /// Searches in the background for the servers of seats that were guessed wrong, while the others
    /// still suffice. A client that reaches the members through proxies guesses which of them leads to a
    /// member that has not answered yet. Nothing waits for this search.
    fn correct_places(self: &Arc<Self>, nodes: Arc<Nodes>) {
        let pause = SEARCH_PAUSE + self.patience.searching();
        if let Ok(mut search) = self.search.try_lock()
            && search.corrected.is_none_or(|last| last.elapsed() > pause)
        {
            search.corrected = Some(Moment::now());
            let members = self.clone();
            tokio::spawn(async move { members.find_in_turn(Some(nodes)).await.map(drop) });
        }
    }

    async fn nodes(self: &Arc<Self>) -> Result<Arc<Nodes>, BackendError> {
        let known = self.nodes.borrow().clone();
        if let Some(nodes) = known {
            return Ok(nodes);
        }
        let found = self.find_others(None).await.map_err(|failed| match failed.is_rejected {
            true => BackendError::Rejected(failed.reason.into()),
            false => BackendError::Unavailable(failed.reason.into()),
        })?;
        Ok(found.expect("there were no nodes before"))
    }

    /// Finds other nodes than these; `None` if these are still the members. The search continues if
    /// this caller stops waiting. Otherwise callers that wait for less than a search takes would never
    /// find any.
    async fn find_others(
        self: &Arc<Self>,
        nodes: Option<Arc<Nodes>>,
    ) -> Result<Option<Arc<Nodes>>, Failed> {
        let members = self.clone();
        let finding = async move { members.find_in_turn(nodes).await };
        let ended =
            |_| Err(Failed { reason: "the runtime has ended".to_owned(), is_rejected: false });
        self.background.spawn(finding).await.unwrap_or_else(ended)
    }

    /// Searches, one search at a time. It takes the time of two searches at most: steps that failed
    /// before a search began share its result.
    async fn find_in_turn(&self, nodes: Option<Arc<Nodes>>) -> Result<Option<Arc<Nodes>>, Failed> {
        let began = Moment::now();
        let mut search = self.search.lock().await;
        let known = self.nodes.borrow().clone();
        if let Some(others) = &known
            && nodes.as_ref().is_none_or(|nodes| !Arc::ptr_eq(nodes, others))
        {
            return Ok(known);
        }
        if let Some((last, failed)) = &search.failed
            && *last > began
        {
            return Err(failed.clone());
        }
        let began = Moment::now();
        let mut answers = Vec::new();
        let searching = self.search(&mut search, &mut answers);
        // Without a majority, it would wait for each server, also for one that hangs.
        let found = timeout(self.patience.searching(), searching).await.ok().flatten();
        let Some(roster) = found else {
            let failed = self.failure(search.cluster.as_deref(), &answers);
            search.failed = Some((began, failed.clone()));
            return Err(failed);
        };
        search.cluster = Some(roster.cluster.clone());
        let servers = self.servers(&mut search, &roster, &answers);
        if let Some(nodes) = nodes.filter(|nodes| nodes.are(&roster, &servers)) {
            nodes.confirm();
            return Ok(None);
        }
        let nodes = Nodes::new(roster, servers, self.patience, self.background.clone());
        let nodes = Arc::new(nodes);
        self.nodes.send_replace(Some(nodes.clone()));
        Ok(Some(nodes))
    }
}
