//! The service that gives restarted nodes their vote back.
//!
//! An admission needs no decision of a person as long as a majority of the nodes votes: together
//! they know every issued token. So the watcher admits each process that it has seen without a vote
//! for the longest ttl. It keeps the time for each process: a node that restarts again is another
//! process, whose wait starts anew. With fewer voters than a majority, it reports that a person must
//! decide, and continues to watch.
//!
//! Several watchers may run at once. Each waits and copies for itself, and an admission that comes
//! second changes nothing.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    candidate::{Candidate, Voters},
    change::connect_after_changes,
    error::OperatorError,
    places::{Answer, Places},
};
use crate::{
    clock::Moment,
    redlock::{
        membership::Standing,
        peer::{Peer, PeerError},
    },
};

/// The time between two looks at the nodes.
const INTERVAL: Duration = Duration::from_secs(1);

/// A watcher of all nodes of a cluster, which [admits](super::Operator::watch) those that restart.
#[derive(Debug)]
#[must_use = "it watches while `next` is awaited"]
pub struct Watcher<'a> {
    places: &'a Places,
    /// The process without a vote on each node, by the node's address.
    candidates: HashMap<String, Watched>,
    /// The change that began the epoch to which they are admitted.
    epoch: Option<String>,
    /// The nodes that can't be admitted, and why.
    left_alone: HashMap<String, String>,
    lacks_majority: bool,
    /// What was seen and not yet returned.
    events: VecDeque<WatchEvent>,
    has_looked: bool,
}

/// What a [`Watcher`] saw or did. Nodes are named by their addresses, without passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A process without a vote was seen. It is admitted after the wait.
    Waiting {
        /// The node.
        node: String,
        /// The time until everything has expired that the node may have voted for.
        remaining: Duration,
    },
    /// A node was admitted.
    Admitted {
        /// The node.
        node: String,
        /// How many of its counters were too low.
        counters_raised: u64,
    },
    /// A node was not admitted. The watcher tries again.
    NotAdmitted {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// A node is left alone: it does not answer, or belongs to another cluster.
    LeftAlone {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// Fewer nodes than a majority may vote. No node can be admitted, and a person must decide.
    TooFewVoters {
        /// The reason, and what to do.
        reason: String,
    },
    /// A majority may vote again.
    MajorityVotes,
}

/// A candidate, and what was reported of it.
#[derive(Debug)]
struct Watched {
    candidate: Candidate,
    is_reported: bool,
    last_failure: Option<String>,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(places: &'a Places) -> Self {
        Self {
            places,
            candidates: HashMap::new(),
            epoch: None,
            left_alone: HashMap::new(),
            lacks_majority: false,
            events: VecDeque::new(),
            has_looked: false,
        }
    }

    /// Watches the nodes until something happens, and returns it.
    ///
    /// # Errors
    /// [`OperatorError::Invalid`] if two URLs lead to one server.
    ///
    /// # Cancellation safety
    /// If this future is dropped, an admission may have been its last step, and is not reported.
    pub async fn next(&mut self) -> Result<WatchEvent, OperatorError> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if std::mem::replace(&mut self.has_looked, true) {
                sleep(INTERVAL).await;
            }
            self.look().await?;
        }
    }

    /// Looks at all nodes once, and admits those whose wait is over.
    async fn look(&mut self) -> Result<(), OperatorError> {
        // 1. Connect to all members. First finish a change of them that is half done. If that fails,
        //    the members without a vote are candidates.
        let answers = connect_after_changes(self.places).await?;

        // 2. Note the processes without a vote. Each wait counts from the first look that saw its
        //    process in this epoch. Before it, locks may have been granted in the epoch before.
        let epoch = answers.epoch.clone();
        let change = epoch.as_ref().map(|epoch| &epoch.change);
        if change.is_some() && self.epoch.as_ref() != change {
            self.epoch = change.cloned();
            self.candidates.clear();
        }
        self.note_candidates(&answers.members, Moment::now());
        self.note_others(&answers.members);

        // 3. Count the voters. The waits continue without a majority: they concern what the nodes
        //    voted for as other processes.
        let voters = Voters::select(answers);
        self.note_majority(&voters);
        if self.lacks_majority {
            return Ok(());
        }

        // 4. Admit the processes whose wait is over. The admission connects anew, and fails for
        //    another process. If an admitted process is without a vote later, it waits again.
        let mut admitted = Vec::new();
        for watched in self.candidates.values_mut() {
            let node = watched.candidate.address.clone();
            let failure = match watched.candidate.admission(self.places, epoch.as_ref(), &voters) {
                Ok(admission) if !admission.remaining().is_zero() => {
                    if !std::mem::replace(&mut watched.is_reported, true) {
                        let remaining = admission.remaining();
                        self.events.push_back(WatchEvent::Waiting { node, remaining });
                    }
                    continue;
                }
                Ok(admission) => match admission.finish().await {
                    Ok(counters_raised) => {
                        self.events.push_back(WatchEvent::Admitted { node, counters_raised });
                        admitted.push(watched.candidate.address.clone());
                        continue;
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if watched.last_failure.as_ref() != Some(&failure) {
                watched.last_failure = Some(failure.clone());
                self.events.push_back(WatchEvent::NotAdmitted { node, reason: failure });
            }
        }
        self.candidates.retain(|node, _| !admitted.contains(node));
        Ok(())
    }

    fn note_candidates(&mut self, members: &[Answer], now: Moment) {
        // A node that does not answer may still be the same process when it does.
        for peer in members.iter().flatten() {
            if !is_candidate(peer) {
                self.candidates.remove(&peer.address);
                continue;
            }
            let noted = self.candidates.get(&peer.address);
            if noted.is_none_or(|noted| noted.candidate.run_id != peer.run_id) {
                let candidate = Candidate::new(peer, now);
                let watched = Watched { candidate, is_reported: false, last_failure: None };
                self.candidates.insert(peer.address.clone(), watched);
            }
        }
    }

    /// Notes the nodes that neither vote nor can be admitted, and reports each reason once.
    fn note_others(&mut self, members: &[Answer]) {
        for member in members {
            let (node, reason) = match member {
                Err(PeerError { address, reason }) => (address, reason.clone()),
                Ok(peer) if peer.standing == Standing::Voting || is_candidate(peer) => {
                    self.left_alone.remove(&peer.address);
                    continue;
                }
                Ok(peer) => (&peer.address, peer.standing.reason().to_owned()),
            };
            if self.left_alone.insert(node.clone(), reason.clone()).as_ref() != Some(&reason) {
                self.events.push_back(WatchEvent::LeftAlone { node: node.clone(), reason });
            }
        }
    }

    fn note_majority(&mut self, voters: &Voters) {
        let lacks_majority = !voters.has_majority();
        if lacks_majority == self.lacks_majority {
            return;
        }
        self.lacks_majority = lacks_majority;
        self.events.push_back(if lacks_majority {
            let reason = voters.too_few("a restarted node").to_string();
            WatchEvent::TooFewVoters { reason }
        } else {
            WatchEvent::MajorityVotes
        });
    }
}

/// Whether a watcher admits the process. Others need a person, and `node status` shows them.
fn is_candidate(peer: &Peer) -> bool {
    matches!(peer.standing, Standing::Restarted | Standing::NoCluster | Standing::OtherEpoch)
}
