//! All nodes of a cluster, and how they are asked: all at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::FromRedisValue;
use tokio::{sync::mpsc, time::timeout};

use super::{
    background::Background,
    membership::Membership,
    node::{Absence, Asking, Known, Node, Voter},
    tally::majority,
};
use crate::backend::{BackendError, redis::script::Call};

/// The nodes of a cluster.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    members: Mutex<Vec<Option<Told>>>,
    /// What goes on when a majority has answered.
    background: Background,
}

/// Answers of nodes, as they come.
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, Result<T, Absence>)>;

impl Nodes {
    pub(super) fn of(nodes: Vec<Node>) -> Self {
        Self {
            members: Mutex::new(vec![None; nodes.len()]),
            nodes,
            background: Background::default(),
        }
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

    /// Sees that a node is none of the others, and belongs to the cluster of those that vote. If a
    /// majority turns out to belong to another one, it is those that have no vote.
    fn join(&self, node: usize, membership: &Membership) -> Result<(), Absence> {
        let mut members = self.members.lock().expect("nothing panics while it has this");
        members[node] = None;
        let others =
            || members.iter().enumerate().filter_map(|(n, told)| Some((n, told.as_ref()?)));
        if let Some((n, _)) = others().find(|(_, told)| told.membership.run_id == membership.run_id)
        {
            let (address, number) = (self.nodes[n].address(), self.len());
            return Err(Absence::NoVote(format!(
                "it is the same server as {address}: name {number} different ones"
            )));
        }
        let is_foreign = |told: &Told| told.membership.cluster != membership.cluster;
        let ours = 1 + others().filter(|(_, told)| !is_foreign(told)).count();
        let foreign: Vec<_> =
            others().filter(|(_, told)| told.votes && is_foreign(told)).map(|(n, _)| n).collect();
        members[node] = Some(Told { membership: membership.clone(), votes: foreign.is_empty() });
        let Some(&one) = foreign.first() else { return Ok(()) };
        let reason = |address: &str| {
            Absence::NoVote(format!(
                "it belongs to another cluster than {address}: name the nodes of one"
            ))
        };
        if ours >= self.majority() {
            for n in foreign {
                self.nodes[n].refuse(reason(self.nodes[node].address()));
                members[n].as_mut().expect("it has told").votes = false;
            }
        }
        // A round that has asked one of those must not count this one besides: it votes from the next on.
        Err(reason(self.nodes[one].address()))
    }
}

/// What a node has told when it was connected to last.
#[derive(Clone)]
struct Told {
    membership: Membership,
    /// Whether it was taken for a node of the cluster.
    votes: bool,
}
