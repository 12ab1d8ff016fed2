//! All nodes of a cluster, which are asked at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};

use super::{
    majority::majority,
    membership::Membership,
    node::{Availability, Node, Voter},
    node_error::NodeError,
    patience::Patience,
    request::Request,
};
use crate::{
    Ttl,
    backend::BackendError,
    background::Background,
    redis::{Server, script::Call},
};

/// The nodes of a cluster.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// The membership of each node when it was last connected to.
    members: Mutex<Vec<Option<Membership>>>,
    /// Whether nodes of different clusters have been seen.
    mixed: AtomicBool,
    /// The requests that continue after a majority has answered.
    background: Background,
    patience: Patience,
}

/// The nodes' answers, in order of arrival.
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, Result<T, NodeError>)>;

impl Nodes {
    pub(super) fn new(nodes: Vec<Node>) -> Self {
        Self {
            members: Mutex::new(vec![None; nodes.len()]),
            mixed: AtomicBool::new(false),
            nodes,
            background: Background::default(),
            patience: Patience::default(),
        }
    }

    /// Makes another client of the same nodes, not connected yet.
    pub(super) fn with_patience(&self, patience: Patience) -> Self {
        let nodes = self.nodes.iter().map(|node| node.with_patience(patience)).collect();
        Self { patience, ..Self::new(nodes) }
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// How long all nodes together have for their answers to a request.
    pub(super) fn timeout(&self, request: Request) -> Duration {
        self.patience.answers(request)
    }

    /// The addresses of all nodes, without passwords.
    pub(super) fn addresses(&self) -> String {
        self.nodes.iter().map(Node::address).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = Arc<Server>> {
        self.nodes.iter().map(Node::server)
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

    /// Gives nodes without a connection a moment to connect. Otherwise a client would acquire its
    /// first lock on the fastest nodes alone.
    pub(super) async fn connect(self: &Arc<Self>) {
        if self.nodes.iter().any(Node::is_unconnected) {
            let connecting = (0..self.len()).map(|node| self.voter(node, Request::Vote));
            let _ = timeout(self.patience.first_connection(), join_all(connecting)).await;
        }
    }

    /// Returns a node that can be asked now and may vote. Connects to it if needed.
    pub(super) async fn voter(
        self: &Arc<Self>,
        node: usize,
        request: Request,
    ) -> Result<Voter, NodeError> {
        let voter = match self.nodes[node].availability(request) {
            Availability::Ready(voter) => voter,
            Availability::Unavailable(error) => return Err(error),
            Availability::NeedsConnection(last_error) => {
                let nodes = self.clone();
                // It continues if this caller stops waiting: later callers use the connection, too.
                let connecting = self.background.spawn(async move {
                    let read_membership = async |connection: &mut _| {
                        let membership = Membership::read(connection, nodes.len()).await?;
                        nodes.register(node, &membership)?;
                        Ok(membership)
                    };
                    nodes.nodes[node].connect(last_error, read_membership).await
                });
                let ended = |_| Err(NodeError::NoAnswer("the runtime has ended".to_owned()));
                connecting.await.unwrap_or_else(ended)?
            }
        };
        self.check_cluster(&voter)?;
        Ok(voter)
    }

    /// Runs a script on a node that may vote.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        node: usize,
        voter: Voter,
        call: impl FnOnce(&Membership) -> Call,
    ) -> Result<T, NodeError> {
        self.nodes[node].run(voter, call).await
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
            let mut silent: BTreeSet<_> = (0..nodes.len()).collect();
            // A send fails once the caller has dropped its end, and that is fine.
            let send = |answer| drop(sender.send(answer));
            let answering = async {
                while let Some((node, answer)) = pending.next().await {
                    silent.remove(&node);
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

    /// The error when too few nodes have voted. It may be retried, unless so many nodes refuse that
    /// the others are no majority.
    pub(super) fn no_majority(&self, errors: &[(usize, NodeError)]) -> BackendError {
        // The request itself is wrong, whatever else is wrong with the nodes.
        if let Some(long) = errors.iter().find(|(_, error)| matches!(error, NodeError::LongTtl(_)))
        {
            return BackendError::Invalid(long.1.to_string().into());
        }
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
        if self.len() - without_vote < self.majority() {
            BackendError::Rejected(reason.into())
        } else {
            BackendError::Unavailable(reason.into())
        }
    }

    /// The error when an acquire got too few votes. A ttl that the cluster never grants comes first:
    /// no other cure would help. One voter is enough to know it.
    pub(super) fn not_acquired(&self, ttl: Ttl, errors: &[(usize, NodeError)]) -> BackendError {
        let longest = self.members().iter().flatten().map(|member| member.max_ttl_ms).max();
        match longest {
            Some(longest) if ttl.as_millis() > longest => BackendError::Invalid(
                format!("the cluster grants no longer ttl than {longest} ms").into(),
            ),
            _ => self.no_majority(errors),
        }
    }

    /// Records a node's membership, and checks that no other URL names the same server.
    fn register(&self, node: usize, membership: &Membership) -> Result<(), NodeError> {
        let mut members = self.members();
        members[node] = None;
        let known = || {
            let others = members.iter().enumerate();
            others.filter_map(|(other, member)| Some((other, member.as_ref()?)))
        };
        if let Some((other, _)) = known().find(|(_, member)| member.run_id == membership.run_id) {
            let (address, number) = (self.nodes[other].address(), self.len());
            return Err(NodeError::NoVote(format!(
                "it is the same server as {address}: name {number} different servers"
            )));
        }
        if known().any(|(_, member)| member.cluster != membership.cluster) {
            self.mixed.store(true, Ordering::Relaxed);
        }
        members[node] = Some(membership.clone());
        Ok(())
    }

    /// If the nodes belong to different clusters, only those of the largest may vote.
    fn check_cluster(&self, voter: &Voter) -> Result<(), NodeError> {
        if !self.mixed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let members = self.members();
        let size = |cluster: &str| {
            members.iter().flatten().filter(|member| member.cluster == cluster).count()
        };
        let own = size(voter.cluster());
        if members.iter().flatten().all(|other| size(&other.cluster) <= own) {
            return Ok(());
        }
        Err(NodeError::NoVote("it belongs to another cluster than most of the nodes".to_owned()))
    }

    fn members(&self) -> MutexGuard<'_, Vec<Option<Membership>>> {
        self.members.lock().expect("nothing panics while it holds this lock")
    }
}
