//! The service that gives restarted nodes their vote back.
//!
//! An admission needs no decision of a person as long as a majority of the nodes votes: together
//! they know every issued token. So the watcher admits each process that it has seen without a vote
//! for the longest ttl. It keeps the time for each process: a node that restarts again is another
//! process, whose wait starts anew. Another operator may admit the process meanwhile, and the node
//! may lose its data again. So a mark in the node's record shows that it has not voted since. With
//! fewer voters than a majority, it reports that a person must decide, and continues to watch.
//!
//! Several watchers may run at once. Each waits and copies for itself, and an admission that comes
//! second changes nothing.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    candidate::{Candidate, Voters, member_of},
    change::connect_after_changes,
    error::OperatorError,
    places::{Answer, Places},
    view::State,
    watch_event::WatchEvent,
};
use crate::redlock::{
    epoch::Epoch,
    membership::Standing,
    peer::{Peer, PeerError},
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
    /// The epoch to which they are admitted: the last that was seen.
    epoch: Option<Epoch>,
    /// What was reported last of each node that can't be admitted.
    left_alone: HashMap<String, WatchEvent>,
    /// The nodes that did not answer the last look.
    silent: HashSet<String>,
    lacks_majority: bool,
    /// What was seen and not yet returned.
    events: VecDeque<WatchEvent>,
    has_looked: bool,
}

/// A candidate, and what was reported of it.
#[derive(Debug)]
struct Watched {
    candidate: Candidate,
    state: State,
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
            silent: HashSet::new(),
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
        let mut answers = connect_after_changes(self.places).await?;

        // 2. Note the processes without a vote. Each wait counts from the first look that saw its
        //    process in this epoch. Before it, locks may have been granted in the epoch before.
        let epoch = answers.epoch.clone();
        if epoch.is_some() && self.epoch != epoch {
            self.epoch.clone_from(&epoch);
            self.candidates.clear();
        }
        self.note_candidates(&mut answers.members).await;
        self.note_others(&answers.members, epoch.as_ref());

        // 3. Count the voters. The waits continue without a majority: they concern what the nodes
        //    voted for as other processes.
        let without_vote = answers.members.iter().flatten().filter(|peer| is_candidate(peer));
        let without_vote: Vec<_> = without_vote.map(|peer| peer.address.clone()).collect();
        let voters = Voters::select(answers);
        self.note_majority(&voters);
        if self.lacks_majority {
            return Ok(());
        }
        let Some(epoch) = epoch else {
            for node in without_vote {
                let reason = voters.no_epoch(&node).to_string();
                let event = WatchEvent::NotAdmitted { node: node.clone(), reason };
                self.report_once(&node, event);
            }
            return Ok(());
        };

        // 4. Admit the processes whose wait is over. The admission connects anew, and fails for
        //    another process. If an admitted process is without a vote later, it waits again.
        let mut admitted = Vec::new();
        for watched in self.candidates.values_mut() {
            let node = watched.candidate.address.clone();
            let admission = watched.candidate.admission(self.places, &epoch);
            let remaining = admission.remaining();
            if !remaining.is_zero() {
                if !std::mem::replace(&mut watched.is_reported, true) {
                    let state = watched.state;
                    self.events.push_back(WatchEvent::Waiting { node, state, remaining });
                }
                continue;
            }
            let failure = match admission.finish().await {
                Ok(copied) => {
                    self.events.push_back(WatchEvent::Admitted { node, copied });
                    admitted.push(watched.candidate.address.clone());
                    continue;
                }
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

    async fn note_candidates(&mut self, members: &mut [Answer]) {
        // A node that does not answer may still be the same process when it does.
        for peer in members.iter_mut().flatten() {
            if !is_candidate(peer) {
                self.candidates.remove(&peer.address);
                continue;
            }
            let Some(epoch) = &self.epoch else { continue };
            let address = match member_of(peer, epoch) {
                Ok(address) => address,
                Err(error) => {
                    self.leave_alone(&peer.address, error.to_string());
                    continue;
                }
            };
            let candidate = match Candidate::mark(peer, address).await {
                Ok(Some(candidate)) => candidate,
                // The next look sees what has become of it.
                Ok(None) => continue,
                // It answers, and can't be admitted either.
                Err(error) => {
                    self.leave_alone(&peer.address, error.reason);
                    continue;
                }
            };
            let noted = self.candidates.get(&candidate.address);
            if noted.is_none_or(|noted| noted.candidate.mark != candidate.mark) {
                let state = State::from(peer.standing);
                let address = candidate.address.clone();
                let watched = Watched { candidate, state, is_reported: false, last_failure: None };
                self.candidates.insert(address, watched);
            }
        }
    }

    /// Notes the nodes that neither vote nor can be admitted, and reports each reason once. Reports
    /// those that answer again.
    fn note_others(&mut self, members: &[Answer], epoch: Option<&Epoch>) {
        for member in members {
            match member {
                Err(error) => drop(self.silent.insert(error.address.clone())),
                Ok(peer) if self.silent.remove(&peer.address) => {
                    let node = peer.address.clone();
                    self.events.push_back(WatchEvent::AnswersAgain { node });
                }
                Ok(_) => {}
            }
            match member {
                Err(PeerError { address, reason }) => self.leave_alone(address, reason.clone()),
                // Without an epoch, it can't be admitted, although it was noted before.
                Ok(peer) if is_candidate(peer) => {
                    if epoch.is_some() && self.candidates.contains_key(&peer.address) {
                        self.left_alone.remove(&peer.address);
                    }
                }
                Ok(peer) if peer.standing == Standing::Voting => {
                    self.left_alone.remove(&peer.address);
                }
                Ok(peer) => self.leave_alone(&peer.address, peer.standing.reason().to_owned()),
            }
        }
    }

    fn leave_alone(&mut self, node: &str, reason: String) {
        self.report_once(node, WatchEvent::LeftAlone { node: node.to_owned(), reason });
    }

    /// Reports why a node can't be admitted, unless that was reported of it last.
    fn report_once(&mut self, node: &str, event: WatchEvent) {
        if self.left_alone.insert(node.to_owned(), event.clone()).as_ref() != Some(&event) {
            self.events.push_back(event);
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
