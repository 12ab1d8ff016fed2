//! The nodes of one roster, which are asked at once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;

use super::{
    long_ttl::LongTtl,
    node::{Node, Process},
    node_error::NodeError,
    patience::{Patience, Request},
    record::vote,
    roster::{Roster, Seat},
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
    /// What the client names in each request to a process.
    votes: HashMap<String, String>,
    /// The servers, one for each seat, in any order.
    nodes: Vec<Arc<Node>>,
    /// The server at which each process was met first. At another one, it must not vote again.
    met: Mutex<HashMap<String, usize>>,
    /// Whether the members may have changed.
    is_outdated: AtomicBool,
    /// The requests that continue after a majority has answered.
    background: TaskTracker,
    patience: Patience,
}

/// The process of a node that has a seat, and what it votes for.
pub(super) struct Voter {
    process: Process,
    /// What the client names in each request for a vote.
    vote: String,
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
        let process = |seat: &Seat| (seat.process.clone(), vote(&roster, &seat.process));
        let votes = roster.seats.iter().map(process).collect();
        let (met, is_outdated) = (Mutex::default(), AtomicBool::new(false));
        Self { roster, votes, nodes, met, is_outdated, background, patience }
    }

    pub(super) fn has(&self, roster: &Roster) -> bool {
        self.roster == *roster
    }

    /// Whether a search has met the process of a seat elsewhere than the last steps, and no more where they
    /// met it. Then the next step needs nodes that have met none.
    pub(super) fn has_moved(&self, answered: &[(&str, &str)]) -> bool {
        let met = self.met.lock().expect("nothing panics while it holds this lock");
        met.iter().any(|(process, first)| {
            let mut places = answered.iter().filter(|(_, other)| other == process).peekable();
            places.peek().is_some() && places.all(|(address, _)| *address != self.address(*first))
        })
    }

    /// Whether a node has rejected the roster since the last search, or has a process without a seat.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Records that a search has found no other roster.
    pub(super) fn confirm(&self) {
        self.is_outdated.store(false, Ordering::Relaxed);
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

    /// Returns the process of a node that can be asked now. Only one with a seat is asked for its vote.
    pub(super) async fn voter(&self, node: usize, request: Request) -> Result<Voter, NodeError> {
        let process = self.nodes[node].connected(request).await?;
        let Some(vote) = self.votes.get(&process.run_id).cloned() else {
            // It may have a seat in a later roster.
            self.is_outdated.store(true, Ordering::Relaxed);
            return Err(NodeError::NoVote(State::Restarted.reason().to_owned()));
        };
        // A release grants nothing, so it needs no vote.
        if request == Request::Release {
            return Ok(Voter { process, vote });
        }
        let mut met = self.met.lock().expect("nothing panics while it holds this lock");
        let first = *met.entry(process.run_id.clone()).or_insert(node);
        if first != node {
            // Two nodes may have swapped their addresses.
            self.is_outdated.store(true, Ordering::Relaxed);
            return Err(NodeError::NoVote(format!(
                "it is the same server as {}",
                self.nodes[first].address()
            )));
        }
        Ok(Voter { process, vote })
    }

    /// Runs a script on a node.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        node: usize,
        voter: Voter,
        call: impl FnOnce(&str) -> Call,
    ) -> Result<T, NodeError> {
        let answer = self.nodes[node].run(voter.process, &call(&voter.vote)).await;
        if let Err(NodeError::OtherRoster(_)) = answer {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        answer
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
            let ask = async |node: usize| {
                let voter = nodes.voter(node, request).await?;
                nodes.run(node, voter, |vote: &_| call(node, vote)).await
            };
            let answer = |node| async move { (node, ask(node).await) };
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
