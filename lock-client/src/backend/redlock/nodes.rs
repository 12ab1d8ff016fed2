//! All nodes of a cluster, and how they are asked: all at once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;

use super::{
    membership::Membership,
    node::{Absence, Asking, Known, Node, Voter},
    tally::majority,
};
use crate::backend::{BackendError, redis::script::Call};

/// The nodes of a cluster.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// As which each was known last.
    members: Mutex<Vec<Option<Membership>>>,
    /// What goes on when a majority has answered. It is closed from the start: a tracker that is not is
    /// never waited to the end of.
    background: TaskTracker,
}

/// Answers of nodes, as they come.
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, Result<T, Absence>)>;

impl Nodes {
    pub(super) fn of(nodes: Vec<Node>) -> Self {
        let background = TaskTracker::new();
        background.close();
        Self { members: Mutex::new(vec![None; nodes.len()]), nodes, background }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn majority(&self) -> usize {
        majority(self.len())
    }

    pub(super) fn background(&self) -> &TaskTracker {
        &self.background
    }

    /// A node that can be asked now, and may vote.
    pub(super) async fn voter(
        self: &Arc<Self>,
        node: usize,
        asking: Asking,
    ) -> Result<Voter, Absence> {
        match self.nodes[node].known(asking) {
            Known::Voter(voter) => Ok(voter),
            Known::Away(why) => Err(why),
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
            let answering = async {
                while let Some(answer) = answering.next().await {
                    // Whoever has heard enough listens no more.
                    let _ = sender.send(answer);
                }
            };
            let _ = timeout(asking.patience(), answering).await;
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
        let mut reasons: Vec<_> = addresses
            .iter()
            .map(|(why, addresses)| format!("{} ({})", why, addresses.join(", ")))
            .collect();
        if reasons.is_empty() {
            reasons.push("no answer in time".to_owned());
        }
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

    /// Sees that a node is none of the others, and belongs to their cluster.
    fn join(&self, node: usize, membership: &Membership) -> Result<(), Absence> {
        let mut members = self.members.lock().expect("nothing panics while it has this");
        for (n, known) in members.iter().enumerate() {
            let Some(known) = known.as_ref().filter(|_| n != node) else { continue };
            let address = self.nodes[n].address();
            if known.run_id == membership.run_id {
                let number = self.len();
                return Err(Absence::NoVote(format!(
                    "it is the same server as {address}: name {number} different ones"
                )));
            }
            if known.cluster != membership.cluster {
                return Err(Absence::NoVote(format!(
                    "it belongs to another cluster than {address}"
                )));
            }
        }
        members[node] = Some(membership.clone());
        Ok(())
    }
}
