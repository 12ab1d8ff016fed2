//! All nodes of a cluster, and how they are asked: all at once.

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
    membership::Membership,
    node::{Absence, Asking, Known, Node, Voter},
    tally::majority,
};
use crate::{backend::BackendError, background::Background, redis::script::Call};

/// How long the slowest of nodes that haven't been connected to yet is waited for.
const FIRST_CONNECTION: Duration = Duration::from_millis(100);

/// The nodes of a cluster.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// What each was when it was connected to last.
    members: Mutex<Vec<Option<Membership>>>,
    /// Whether they have been seen not to belong to one cluster.
    mixed: AtomicBool,
    /// What goes on when a majority has answered.
    background: Background,
}

/// Answers of nodes, as they come.
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, Result<T, Absence>)>;

impl Nodes {
    pub(super) fn of(nodes: Vec<Node>) -> Self {
        Self {
            members: Mutex::new(vec![None; nodes.len()]),
            mixed: AtomicBool::new(false),
            nodes,
            background: Background::default(),
        }
    }

    pub(super) fn addresses(&self) -> Vec<&str> {
        self.nodes.iter().map(Node::address).collect()
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

    /// Gives those a moment that haven't been connected to yet: else the first lock of a client would be
    /// had on the fastest of them alone.
    pub(super) async fn connect(self: &Arc<Self>) {
        if self.nodes.iter().any(Node::is_unknown) {
            let connecting = (0..self.len()).map(|node| self.voter(node, Asking::Vote));
            let _ = timeout(FIRST_CONNECTION, join_all(connecting)).await;
        }
    }

    /// A node that can be asked now, and may vote.
    pub(super) async fn voter(
        self: &Arc<Self>,
        node: usize,
        asking: Asking,
    ) -> Result<Voter, Absence> {
        let voter = match self.nodes[node].known(asking) {
            Known::Voter(voter) => voter,
            Known::Away(why) => return Err(why),
            Known::Stale(suspected) => {
                let nodes = self.clone();
                // It is for those who ask next, too, if nobody waits for it any more.
                let connecting = self.background.spawn(async move {
                    let learn = async |connection: &mut _| {
                        let membership = Membership::learn(connection, nodes.len()).await?;
                        nodes.join(node, &membership)?;
                        Ok(membership)
                    };
                    nodes.nodes[node].connect(suspected, learn).await
                });
                let ended = |_| Err(Absence::NoAnswer("the runtime has ended".to_owned()));
                connecting.await.unwrap_or_else(ended)?
            }
        };
        self.compare(&voter)?;
        Ok(voter)
    }

    /// Runs a script on a node that may vote.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        node: usize,
        voter: Voter,
        call: impl FnOnce(&Membership) -> Call,
    ) -> Result<T, Absence> {
        self.nodes[node].run(voter, call).await
    }

    /// Asks all nodes at once, in the background: who has heard enough doesn't wait for the others.
    pub(super) fn ask_all<T: FromRedisValue + Send + 'static>(
        self: &Arc<Self>,
        asking: Asking,
        call: impl Fn(&Membership) -> Call + Send + Sync + 'static,
    ) -> Answers<T> {
        let (sender, answers) = mpsc::unbounded_channel();
        let nodes = self.clone();
        self.background.spawn(async move {
            let ask = async |node: usize| {
                let voter = nodes.voter(node, asking).await?;
                nodes.run(node, voter, &call).await
            };
            let answer = |node| async move { (node, ask(node).await) };
            let mut answering: FuturesUnordered<_> = (0..nodes.len()).map(answer).collect();
            let mut silent: BTreeSet<_> = (0..nodes.len()).collect();
            // Whoever has heard enough listens no more.
            let tell = |answer| drop(sender.send(answer));
            let answering = async {
                while let Some((node, answer)) = answering.next().await {
                    silent.remove(&node);
                    tell((node, answer));
                }
            };
            let _ = timeout(asking.patience(), answering).await;
            for node in silent {
                tell((node, Err(Absence::silent())));
            }
        });
        answers
    }

    /// What to tell when too few nodes have answered: that it may be tried again, unless so many refuse
    /// that no majority is left.
    pub(super) fn too_few(&self, absent: &[(usize, Absence)]) -> BackendError {
        let mut addresses: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (node, why) in absent {
            addresses.entry(why.to_string()).or_default().push(self.nodes[*node].address());
        }
        let reasons: Vec<_> = addresses
            .iter()
            .map(|(why, addresses)| format!("{} ({})", why, addresses.join(", ")))
            .collect();
        let without_vote =
            absent.iter().filter(|(_, why)| matches!(why, Absence::NoVote(_))).count();
        let reason =
            format!("no majority of the {} nodes has voted: {}", self.len(), reasons.join("; "));
        if self.len() - without_vote < self.majority() {
            BackendError::Rejected(reason.into())
        } else {
            BackendError::Unavailable(reason.into())
        }
    }

    /// Notes what a node is, and sees that it is none of the others.
    fn join(&self, node: usize, membership: &Membership) -> Result<(), Absence> {
        let mut members = self.members();
        members[node] = None;
        let known =
            || members.iter().enumerate().filter_map(|(n, other)| Some((n, other.as_ref()?)));
        if let Some((n, _)) = known().find(|(_, other)| other.run_id == membership.run_id) {
            let (address, number) = (self.nodes[n].address(), self.len());
            return Err(Absence::NoVote(format!(
                "it is the same server as {address}: name {number} different ones"
            )));
        }
        if known().any(|(_, other)| other.cluster != membership.cluster) {
            self.mixed.store(true, Ordering::Relaxed);
        }
        members[node] = Some(membership.clone());
        Ok(())
    }

    /// Sees that a node belongs to the cluster that most of them do, if they don't all belong to one.
    fn compare(&self, voter: &Voter) -> Result<(), Absence> {
        if !self.mixed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let members = self.members();
        let of = |cluster: &str| members.iter().flatten().filter(|m| m.cluster == cluster).count();
        if members.iter().flatten().all(|other| of(&other.cluster) <= of(voter.cluster())) {
            return Ok(());
        }
        Err(Absence::NoVote("it belongs to another cluster than most of them".to_owned()))
    }

    fn members(&self) -> MutexGuard<'_, Vec<Option<Membership>>> {
        self.members.lock().expect("nothing panics while it has this")
    }
}
