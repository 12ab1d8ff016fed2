//! All nodes of a cluster, which are asked at once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};

use super::{
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
    /// The membership of each node when it was last connected to.
    members: Mutex<Vec<Option<Membership>>>,
    /// The epoch in which the nodes vote; unknown until a majority of them has named it.
    epoch: OnceLock<Epoch>,
    /// Whether a node was found that may vote in a later epoch.
    is_outdated: AtomicBool,
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
            members: Mutex::new(vec![None; urls.len()]),
            epoch: epoch.map_or_else(OnceLock::new, OnceLock::from),
            is_outdated: AtomicBool::new(false),
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

    /// The epoch in which the nodes vote, if it is known.
    pub(super) fn epoch(&self) -> Option<&Epoch> {
        self.epoch.get()
    }

    /// Whether the nodes may not be the members any more.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Records that a search has found no later epoch than that of these nodes.
    pub(super) fn confirm(&self) {
        self.is_outdated.store(false, Ordering::Relaxed);
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
        if self.epoch.get().is_some() || self.is_outdated() {
            return;
        }
        let mut connecting: FuturesUnordered<_> =
            (0..self.len()).map(|node| self.connected(node, Request::Vote)).collect();
        let learning = async {
            while self.epoch.get().is_none() && !self.is_outdated() {
                if connecting.next().await.is_none() {
                    return;
                }
            }
        };
        let _ = timeout(self.timeout(Request::Vote), learning).await;
        // The members may be others, although fewer than a majority of the nodes have named them.
        if self.epoch.get().is_none() && self.may_be_others() {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
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
        if request == Request::Vote
            && let Err(error) = self.check_epoch(voter.membership())
        {
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
                        nodes.register(node, &membership)?;
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
            self.is_outdated.store(true, Ordering::Relaxed);
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
    /// and so many nodes refuse that the others are no majority.
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
        if self.epoch().is_none() && self.len() - without_vote < self.majority() {
            BackendError::Rejected(reason.into())
        } else {
            BackendError::Unavailable(reason.into())
        }
    }

    /// Checks that the cluster grants a ttl. Before the epoch is known, one node is enough,
    /// because all nodes of a cluster have the same longest ttl.
    pub(super) fn check_ttl(&self, ttl: Ttl) -> Result<(), BackendError> {
        let longest = match self.epoch() {
            Some(epoch) => Some(epoch.max_ttl_ms),
            None => self.members().iter().flatten().map(|member| member.epoch.max_ttl_ms).max(),
        };
        let longest = longest.and_then(|longest| Ttl::new(Duration::from_millis(longest)).ok());
        match longest {
            Some(longest) if ttl > longest => {
                Err(BackendError::Invalid(LongTtl { ttl, longest }.into()))
            }
            _ => Ok(()),
        }
    }

    /// Records a node's membership, and checks that no other URL names the same server. Once a
    /// majority has named one epoch, the nodes vote in that one.
    fn register(&self, node: usize, membership: &Membership) -> Result<(), NodeError> {
        let mut members = self.members();
        members[node] = None;
        let mut known = members.iter().enumerate();
        let is_same = |member: &Option<Membership>| {
            member.as_ref().is_some_and(|m| m.run_id == membership.run_id)
        };
        if let Some((other, _)) = known.find(|(_, member)| is_same(member)) {
            let (address, number) = (self.nodes[other].address(), self.len());
            return Err(NodeError::NoVote(format!(
                "it is the same server as {address}: name {number} different servers"
            )));
        }
        members[node] = Some(membership.clone());
        if self.epoch.get().is_none() {
            let epoch = &membership.epoch;
            let others = members.iter().flatten().filter(|other| other.epoch == *epoch);
            if others.count() < self.majority() {
                return Ok(());
            }
            if !self.are_members(epoch, &members) {
                self.is_outdated.store(true, Ordering::Relaxed);
                return Ok(());
            }
            self.epoch.get_or_init(|| epoch.clone());
        }
        Ok(())
    }

    /// Whether a node votes in an epoch of other members, or two nodes vote in different epochs.
    fn may_be_others(&self) -> bool {
        let members = self.members();
        let mut epochs = members.iter().flatten().map(|member| &member.epoch);
        let Some(first) = epochs.next() else { return false };
        !self.are_members(first, &members) || epochs.any(|epoch| epoch != first)
    }

    /// Whether these nodes are the members of an epoch. In the first epoch, a client may reach them
    /// at other addresses.
    fn are_members(&self, epoch: &Epoch, known: &[Option<Membership>]) -> bool {
        let is_here = |member: &String| {
            let is_named = known.iter().flatten().any(|known| known.address == *member);
            is_named || self.nodes.iter().any(|node| node.address() == member)
        };
        epoch.members.len() == self.len()
            && (epoch.number == 1 || epoch.members.iter().all(is_here))
    }

    /// Checks that a node votes in the epoch of these nodes. All that is asked for in one step must
    /// be granted in one epoch.
    fn check_epoch(&self, membership: &Membership) -> Result<(), NodeError> {
        match self.epoch.get() {
            Some(epoch) if membership.epoch.change == epoch.change => Ok(()),
            Some(epoch) if membership.epoch.cluster != epoch.cluster => Err(NodeError::NoVote(
                "it belongs to another cluster than most of the nodes".to_owned(),
            )),
            // The node has missed a change. It is behind, and these nodes are not.
            Some(epoch) if membership.epoch.number < epoch.number => {
                Err(NodeError::OtherEpoch("it votes in an earlier epoch".to_owned()))
            }
            Some(_) => {
                self.is_outdated.store(true, Ordering::Relaxed);
                Err(NodeError::OtherEpoch("it votes in another epoch".to_owned()))
            }
            None if self.is_outdated() => {
                Err(NodeError::OtherEpoch("the members have changed".to_owned()))
            }
            None => Err(NodeError::NoAnswer(
                "fewer than a majority of the nodes have named the members".to_owned(),
            )),
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Option<Membership>>> {
        self.members.lock().expect("nothing panics while it holds this lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u64, change: &str) -> Epoch {
        let members = ["a:6379", "b:6379", "c:6379"].map(ToOwned::to_owned).to_vec();
        Epoch { number, change: change.to_owned(), ..Epoch::first("id".to_owned(), members, 1_000) }
    }

    #[test]
    fn nodes_are_outdated_by_another_epoch_unless_it_is_an_earlier_one() {
        let urls = NodeUrl::parse_all(["redis://a", "redis://b", "redis://c"]).unwrap();
        let present = Some(epoch(2, "second"));
        let nodes = Nodes::new(&urls, present, Patience::default(), Background::default());
        let votes = |number, change| {
            let (run_id, address) = ("1".to_owned(), "a:6379".to_owned());
            nodes.check_epoch(&Membership { run_id, address, epoch: epoch(number, change) })
        };
        assert!(votes(2, "second").is_ok());
        assert!(matches!(votes(1, "id"), Err(NodeError::OtherEpoch(_))));
        assert!(!nodes.is_outdated(), "the node is behind");
        for (number, change) in [(2, "other"), (3, "third")] {
            assert!(matches!(votes(number, change), Err(NodeError::OtherEpoch(_))));
            assert!(nodes.is_outdated(), "{change}");
            nodes.confirm();
            assert!(!nodes.is_outdated());
        }
    }
}
