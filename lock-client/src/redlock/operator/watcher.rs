//! The service that gives restarted nodes their vote back.
//!
//! An admission needs no decision of a person as long as a majority of the nodes votes: what these
//! know is all that was issued. So the watcher admits each process that it has seen without a vote
//! for the longest ttl. It keeps the time for each process: a node that restarts again is another
//! process, whose wait starts anew. With fewer voters than a majority, it reports that a person must
//! decide, and continues to watch.
//!
//! Several watchers may run at once. Each waits and copies for itself, and an admission that comes
//! second changes nothing.

use std::{collections::VecDeque, time::Duration};

use tokio::time::sleep;

use super::{
    candidate::{Candidate, Voters},
    error::OperatorError,
    peer::{Peer, PeerError, check_distinct},
    places::Places,
};
use crate::{clock::Moment, redlock::membership::Standing};

/// The time between two looks at the nodes.
const INTERVAL: Duration = Duration::from_secs(1);

/// A watcher of all nodes of a cluster, which [admits](super::Operator::watch) those that restart.
#[derive(Debug)]
#[must_use = "it watches while `next` is awaited"]
pub struct Watcher<'a> {
    places: &'a Places,
    /// The process without a vote on each node.
    candidates: Vec<Option<Watched>>,
    /// Why each node is left alone.
    left_alone: Vec<Option<String>>,
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
            candidates: (0..places.len()).map(|_| None).collect(),
            left_alone: vec![None; places.len()],
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
        // 1. Connect to all nodes. A server that is named twice would be a voter twice.
        let peers = self.places.connect_all().await;
        check_distinct(peers.iter().flatten())?;

        // 2. Note the processes without a vote. Each wait counts from the first look that saw its
        //    process.
        self.note_candidates(&peers, Moment::now());
        self.note_others(&peers);

        // 3. Count the voters. The waits continue without a majority: they concern what the nodes
        //    voted for as other processes.
        let voters = Voters::select(peers);
        self.note_majority(&voters);
        if self.lacks_majority {
            return Ok(());
        }

        // 4. Admit the processes whose wait is over. The admission connects anew, and fails for
        //    another process. If an admitted process is without a vote later, it waits again.
        for noted in &mut self.candidates {
            let Some(watched) = noted else { continue };
            let node = watched.candidate.address.clone();
            let failure = match watched.candidate.admission(self.places, &voters) {
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
                        *noted = None;
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
        Ok(())
    }

    fn note_candidates(&mut self, peers: &[Result<Peer, PeerError>], now: Moment) {
        for (node, (peer, noted)) in peers.iter().zip(&mut self.candidates).enumerate() {
            // A node that does not answer may still be the same process when it does.
            let Ok(peer) = peer else { continue };
            match peer.standing {
                Standing::Restarted | Standing::NoCluster => {
                    let is_noted =
                        noted.as_ref().is_some_and(|noted| noted.candidate.run_id == peer.run_id);
                    if !is_noted {
                        let candidate = Candidate::new(node, peer, now);
                        *noted =
                            Some(Watched { candidate, is_reported: false, last_failure: None });
                    }
                }
                // These need a person, and `node status` shows them.
                Standing::Voting | Standing::Prepared | Standing::OtherCluster => *noted = None,
            }
        }
    }

    /// Notes the nodes that neither vote nor can be admitted, and reports each reason once.
    fn note_others(&mut self, peers: &[Result<Peer, PeerError>]) {
        for (peer, noted) in peers.iter().zip(&mut self.left_alone) {
            let (node, reason) = match peer {
                Err(PeerError { address, reason }) => (address, Some(reason.clone())),
                Ok(Peer { address, standing, .. }) => match standing {
                    Standing::Prepared | Standing::OtherCluster => {
                        (address, Some(standing.reason().to_owned()))
                    }
                    Standing::Voting | Standing::Restarted | Standing::NoCluster => (address, None),
                },
            };
            if let Some(reason) = reason.clone().filter(|_| reason != *noted) {
                self.events.push_back(WatchEvent::LeftAlone { node: node.clone(), reason });
            }
            *noted = reason;
        }
    }

    fn note_majority(&mut self, voters: &Voters) {
        let lacks_majority = !voters.has_majority(self.places);
        if lacks_majority == self.lacks_majority {
            return;
        }
        self.lacks_majority = lacks_majority;
        self.events.push_back(if lacks_majority {
            let reason = voters.too_few(self.places, "a restarted node").to_string();
            WatchEvent::TooFewVoters { reason }
        } else {
            WatchEvent::MajorityVotes
        });
    }
}
