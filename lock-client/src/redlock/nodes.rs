//! All nodes of a cluster, which are asked at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};

use super::{
    electorate::Electorate,
    epoch::Epoch,
    long_ttl::LongTtl,
    majority::majority,
    membership::Membership,
    node::{Availability, Node, Voter},
    node_error::NodeError,
    node_urls::NodeUrl,
    patience::Patience,
    request::Request,
};
use crate::{
    Ttl,
    backend::BackendError,
    background::Background,
    redis::{script::Call, wakeups::Subscriptions},
};

/// The nodes of a cluster, in one epoch.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    electorate: Electorate,
    /// The requests that continue after a majority has answered.
    background: Background,
    patience: Patience,
}

/// The nodes' answers, in order of arrival.
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, Result<T, NodeError>)>;

impl Nodes {
    /// Creates a client of these nodes, which is not connected yet. They must vote in the epoch, if
    /// one is given.
    pub(super) fn new(
        urls: &[NodeUrl],
        epoch: Option<Epoch>,
        patience: Patience,
        background: Background,
    ) -> Self {
        Self {
            nodes: urls.iter().map(|url| Node::new(url.clone(), patience)).collect(),
            electorate: Electorate::new(urls, epoch),
            background,
            patience,
        }
    }

    /// How long all nodes together have for their answers to a request.
    pub(super) fn timeout(&self, request: Request) -> Duration {
        self.patience.answers(request)
    }

    /// The addresses of all nodes, without passwords.
    pub(super) fn addresses(&self) -> String {
        self.nodes.iter().map(Node::address).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn subscriptions(&self) -> Vec<Subscriptions> {
        self.nodes.iter().map(Node::subscriptions).collect()
    }

    pub(super) fn urls(&self) -> impl Iterator<Item = &NodeUrl> {
        self.nodes.iter().map(Node::url)
    }

    /// The address of a node, without a password.
    pub(super) fn address(&self, node: usize) -> &str {
        self.nodes[node].address()
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.len())
    }

    pub(super) fn background(&self) -> &Background {
        &self.background
    }

    /// What the nodes have said about their epoch.
    pub(super) fn electorate(&self) -> &Electorate {
        &self.electorate
    }

    /// Gives nodes without a connection a moment to connect. Otherwise a client would acquire its
    /// first lock on the fastest nodes alone.
    pub(super) async fn connect(self: &Arc<Self>) {
        if self.nodes.iter().any(Node::is_unconnected) {
            let mut connecting: FuturesUnordered<_> =
                (0..self.len()).map(|node| self.connected(node, Request::Vote)).collect();
            let all = async { while connecting.next().await.is_some() {} };
            let _ = timeout(self.patience.first_connection(), all).await;
        }
    }

    /// Waits until a majority of the nodes has named the epoch, or can't.
    pub(super) async fn learn_epoch(self: &Arc<Self>) {
        if !self.electorate.is_unknown() {
            return;
        }
        let mut connecting: FuturesUnordered<_> =
            (0..self.len()).map(|node| self.connected(node, Request::Vote)).collect();
        let learning = async {
            while self.electorate.is_unknown() {
                if connecting.next().await.is_none() {
                    return;
                }
            }
        };
        let _ = timeout(self.timeout(Request::Vote), learning).await;
        self.electorate.end_learning();
    }

    /// Returns a node that can be asked now and may vote in the epoch of these nodes. Connects to it
    /// if needed.
    pub(super) async fn voter(
        self: &Arc<Self>,
        node: usize,
        request: Request,
    ) -> Result<Voter, NodeError> {
        let voter = self.connected(node, request).await?;
        // A release grants nothing, so it needs no vote.
        if request == Request::Release {
            return Ok(voter);
        }
        if let Err(error) = self.electorate.check(voter.membership()) {
            self.nodes[node].reconnect_later(&voter, &error);
            return Err(error);
        }
        Ok(voter)
    }

    /// Returns a node that can be asked now. Connects to it if needed.
    async fn connected(
        self: &Arc<Self>,
        node: usize,
        request: Request,
    ) -> Result<Voter, NodeError> {
        match self.nodes[node].availability(request) {
            Availability::Ready(voter) => Ok(voter),
            Availability::Unavailable(error) => Err(error),
            Availability::NeedsConnection(last_error) => {
                let nodes = self.clone();
                // It continues if this caller stops waiting: later callers use the connection, too.
                let connecting = self.background.spawn(async move {
                    let read_membership = async |connection: &mut _| {
                        let membership = Membership::read(connection).await?;
                        nodes.electorate.register(node, &membership)?;
                        Ok(membership)
                    };
                    nodes.nodes[node].connect(last_error, read_membership).await
                });
                let ended = |_| Err(NodeError::NoAnswer("the runtime has ended".to_owned()));
                connecting.await.unwrap_or_else(ended)
            }
        }
    }

    /// Runs a script on a node that may vote.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        node: usize,
        voter: Voter,
        call: impl FnOnce(&Membership) -> Call,
    ) -> Result<T, NodeError> {
        let answer = self.nodes[node].run(voter, call).await;
        if let Err(NodeError::OtherEpoch(_)) = answer {
            self.electorate.outdate();
        }
        answer
    }

    /// Asks all nodes at once, in the background. The caller may stop reading once it has enough
    /// answers.
    pub(super) fn ask_all<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        request: Request,
        call: impl Fn(usize, &Membership) -> Call + Send + Sync + 'static,
    ) -> Answers<T> {
        let (sender, answers) = mpsc::unbounded_channel();
        let nodes = self.clone();
        self.background.spawn(async move {
            let ask = async |node: usize| {
                let voter = nodes.voter(node, request).await?;
                nodes.run(node, voter, |member: &_| call(node, member)).await
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

    /// The error when too few nodes have voted. It may be retried, unless no majority has ever voted
    /// and so many nodes reject that the others are no majority.
    pub(super) fn no_majority(&self, errors: &[(usize, NodeError)]) -> BackendError {
        let mut by_reason: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (node, error) in errors {
            by_reason.entry(error.to_string()).or_default().push(self.nodes[*node].address());
        }
        let reasons: Vec<_> = by_reason
            .iter()
            .map(|(reason, addresses)| format!("{}: {reason}", addresses.join(", ")))
            .collect();
        let without_vote =
            errors.iter().filter(|(_, error)| matches!(error, NodeError::NoVote(_))).count();
        let reason =
            format!("no majority of the {} nodes has voted: {}", self.len(), reasons.join("; "));
        // Members of a known epoch that have no vote are admitted again.
        if self.electorate.epoch().is_none() && self.len() - without_vote < self.majority() {
            BackendError::Rejected(reason.into())
        } else {
            BackendError::Unavailable(reason.into())
        }
    }

    /// Checks that the cluster grants a ttl.
    pub(super) fn check_ttl(&self, ttl: Ttl) -> Result<(), BackendError> {
        let longest = self.electorate.longest_ttl();
        match longest {
            Some(longest) if ttl > longest => {
                Err(BackendError::Invalid(LongTtl { ttl, longest }.into()))
            }
            _ => Ok(()),
        }
    }
}
