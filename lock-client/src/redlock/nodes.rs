//! The nodes of one roster, which are asked at once.

use std::{
    collections::BTreeMap,
    iter,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;

use super::{
    node::{Node, Process},
    node_error::NodeError,
    patience::{Patience, Request},
    record::vote,
    roster::Roster,
    state::State,
};
use crate::{
    Ttl,
    backend::BackendError,
    redis::{script::Call, wakeups::Subscriptions},
};

/// The nodes of one roster. A step asks them alone: what it asks for holds for one roster only.
pub(super) struct Nodes {
    roster: Roster,
    /// What the client names in each request to the process of a seat.
    votes: Vec<String>,
    /// The server of each seat. Only the seat's own process is asked there: one that answers at two
    /// addresses has one vote.
    nodes: Vec<Arc<Node>>,
    /// Whether the members, or their addresses, may have changed.
    is_outdated: AtomicBool,
    /// Whether the process of another seat answers at a seat's server.
    is_misplaced: AtomicBool,
    /// The requests that continue after a majority has answered.
    background: TaskTracker,
    patience: Patience,
}

/// The nodes' answers, in order of arrival.
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, Result<T, NodeError>)>;

impl Nodes {
    /// Takes a server for each seat of a roster.
    pub(super) fn new(
        roster: Roster,
        nodes: Vec<Arc<Node>>,
        patience: Patience,
        background: TaskTracker,
    ) -> Self {
        assert_eq!(roster.seats.len(), nodes.len(), "each seat has a server");
        let votes = roster.seats.iter().map(|seat| vote(&roster, &seat.process)).collect();
        let [is_outdated, is_misplaced] = [false; 2].map(AtomicBool::new);
        Self { roster, votes, nodes, is_outdated, is_misplaced, background, patience }
    }

    pub(super) fn are(&self, roster: &Roster, servers: &[Arc<Node>]) -> bool {
        self.roster == *roster && iter::zip(&self.nodes, servers).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// The server of the seat that a process has.
    pub(super) fn server_of(&self, process: &str) -> Option<&Arc<Node>> {
        let seat = self.roster.seats.iter().position(|seat| seat.process == process);
        seat.map(|seat| &self.nodes[seat])
    }

    /// Whether a node has rejected the roster since the last search, or has another process.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Whether a seat's server has the process of another seat: a search may find where its own is.
    pub(super) fn is_misplaced(&self) -> bool {
        self.is_misplaced.load(Ordering::Relaxed)
    }

    /// Records that a search has found no other roster.
    pub(super) fn confirm(&self) {
        self.is_outdated.store(false, Ordering::Relaxed);
        self.is_misplaced.store(false, Ordering::Relaxed);
    }

    /// How long all nodes together have for their answers to a request.
    pub(super) fn timeout(&self, request: Request) -> Duration {
        self.patience.answers(request)
    }

    /// The addresses of all nodes, without passwords.
    pub(super) fn addresses(&self) -> String {
        self.nodes.iter().map(|node| node.address()).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn subscriptions(&self) -> Vec<Subscriptions> {
        self.nodes.iter().map(|node| node.subscriptions()).collect()
    }

    /// The address of a node, without a password.
    pub(super) fn address(&self, node: usize) -> &str {
        self.nodes[node].address()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn majority(&self) -> usize {
        self.roster.majority()
    }

    pub(super) fn background(&self) -> &TaskTracker {
        &self.background
    }

    /// Gives nodes without a connection a moment to connect. Otherwise a client would acquire its
    /// first lock on the fastest nodes alone.
    pub(super) async fn connect(&self) {
        if self.nodes.iter().any(|node| node.is_unconnected()) {
            let mut connecting: FuturesUnordered<_> =
                self.nodes.iter().map(|node| node.connected(Request::Vote)).collect();
            let all = async { while connecting.next().await.is_some() {} };
            let _ = timeout(self.patience.first_connection(), all).await;
        }
    }

    /// Checks the connections to all nodes, and makes lost ones again. A node that hangs delays no other.
    pub(super) fn check_connections(&self) {
        self.nodes.iter().for_each(Node::check);
    }

    /// Returns the process of a seat, if it can be asked now.
    pub(super) async fn voter(
        &self,
        node: usize,
        request: Request,
    ) -> Result<Arc<Process>, NodeError> {
        let process = self.nodes[node].connected(request).await?;
        if process.run_id == self.roster.seats[node].process {
            return Ok(process);
        }
        // It may have a seat in a later roster, or two members may have swapped their addresses.
        self.is_outdated.store(true, Ordering::Relaxed);
        Err(NodeError::NoVote(match self.server_of(&process.run_id) {
            Some(own) => {
                self.is_misplaced.store(true, Ordering::Relaxed);
                format!("it is the same server as {}", own.address())
            }
            None => State::Restarted.reason().to_owned(),
        }))
    }

    /// Runs a script on a node.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        node: usize,
        process: &Process,
        call: impl FnOnce(&str) -> Call,
    ) -> Result<T, NodeError> {
        let answer = self.nodes[node].run(process, &call(&self.votes[node])).await;
        if let Err(NodeError::OtherRoster(_)) = answer {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        answer
    }

    /// Asks the process of a seat.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        node: usize,
        request: Request,
        call: impl FnOnce(&str) -> Call,
    ) -> Result<T, NodeError> {
        let process = self.voter(node, request).await?;
        self.run(node, &process, call).await
    }

    /// Asks all nodes at once, in the background. The caller may stop reading once it has enough
    /// answers.
    pub(super) fn ask_all<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        request: Request,
        call: impl Fn(usize, &str) -> Call + Send + Sync + 'static,
    ) -> Answers<T> {
        let (sender, answers) = mpsc::unbounded_channel();
        let nodes = self.clone();
        self.background.spawn(async move {
            let (asked, call) = (&nodes, &call);
            let answer = |node| async move {
                (node, asked.ask(node, request, |vote: &_| call(node, vote)).await)
            };
            let mut pending: FuturesUnordered<_> = (0..nodes.len()).map(answer).collect();
            let mut silent: Vec<_> = (0..nodes.len()).collect();
            // A send fails once the caller has dropped its end, and that is fine.
            let send = |answer| drop(sender.send(answer));
            let answering = async {
                while let Some((node, answer)) = pending.next().await {
                    silent.retain(|other| *other != node);
                    send((node, answer));
                }
            };
            let _ = timeout(nodes.timeout(request), answering).await;
            for node in silent {
                send((node, Err(NodeError::timed_out())));
            }
        });
        answers
    }

    /// The error when too few nodes have voted. It may be retried: members that have no vote are
    /// admitted again.
    pub(super) fn no_majority(&self, errors: &[(usize, NodeError)]) -> BackendError {
        let errors = errors.iter().map(|(node, error)| (self.address(*node), error));
        BackendError::Unavailable(no_majority(self.len(), errors).into())
    }

    /// Checks that the cluster grants a ttl.
    pub(super) fn check_ttl(&self, ttl: Ttl) -> Result<(), BackendError> {
        match Ttl::new(Duration::from_millis(self.roster.max_ttl_ms)) {
            Ok(longest) if ttl > longest => {
                Err(BackendError::Invalid(LongTtl { ttl, longest }.into()))
            }
            _ => Ok(()),
        }
    }
}

/// Says why too few of so many nodes have voted.
pub(super) fn no_majority<'a>(
    nodes: usize,
    errors: impl Iterator<Item = (&'a str, &'a NodeError)>,
) -> String {
    let errors = errors.map(|(address, error)| (address, error.to_string()));
    format!("no majority of the {nodes} nodes has voted: {}", by_reason(errors))
}

/// Says each reason once, after the addresses for which it holds.
pub(super) fn by_reason<'a>(reasons: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut by_reason: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (address, reason) in reasons {
        by_reason.entry(reason).or_default().push(address);
    }
    let reasons: Vec<_> = by_reason
        .iter()
        .map(|(reason, addresses)| format!("{}: {reason}", addresses.join(", ")))
        .collect();
    reasons.join("; ")
}

/// The ttl is longer than any that the cluster grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ttl of {ttl} is longer than the cluster's longest, {longest}")]
pub struct LongTtl {
    pub(super) ttl: Ttl,
    pub(super) longest: Ttl,
}

impl LongTtl {
    /// The longest ttl that the cluster grants.
    pub fn longest(&self) -> Ttl {
        self.longest
    }
}
