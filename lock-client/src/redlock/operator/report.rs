//! What people should know of the takeovers of a cluster.

use std::{fmt, time::Duration};

use super::{counters::CopiedCounters, error::OperatorError, watcher::Watcher};
use crate::{
    redis::keys::Keys,
    redlock::roster::{Roster, Seat},
};

/// What a [`Watcher`](super::Watcher) saw or did. Nodes are named by their addresses, without
/// passwords. It displays as a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// Another process takes a member's seat. It is admitted after the wait.
    Waiting {
        /// The node.
        node: String,
        /// The time until everything has expired that the process before may have voted for.
        remaining: Duration,
    },
    /// A node was admitted.
    Admitted {
        /// The node.
        node: String,
        /// The counters that were copied to it.
        copied: CopiedCounters,
    },
    /// A node has no vote, and gets none now. The watcher tries again.
    LeftAlone {
        /// The node.
        node: String,
        /// The reason.
        reason: String,
    },
    /// A node that did not answer answers again.
    AnswersAgain {
        /// The node.
        node: String,
    },
    /// Fewer nodes than a majority may vote. No node can be admitted, and a person must decide.
    TooFewVoters {
        /// The reason, and what to do.
        reason: String,
    },
    /// A majority may vote again.
    MajorityVotes,
    /// Another watcher works. This one goes on when the other has ended.
    StandsBy,
}

impl fmt::Display for WatchEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { node, remaining } => write!(
                f,
                "{node} has another process. It votes in {remaining:.1?}, when all earlier locks have \
                 expired."
            ),
            Self::Admitted { node, copied } => {
                write!(f, "{node} votes; {} of its counters were raised", copied.raised)
            }
            Self::LeftAlone { node, reason } => write!(f, "{node} is left alone: {reason}"),
            Self::AnswersAgain { node } => write!(f, "{node} answers again"),
            Self::TooFewVoters { reason } => f.write_str(reason),
            Self::StandsBy => f.write_str("another watcher works, and this one stands by"),
            Self::MajorityVotes => f.write_str("a majority of the nodes votes again"),
        }
    }
}

impl Watcher<'_> {
    /// Reports what changed: the majority, and the nodes that have no vote and can't get one.
    pub(super) fn report(&mut self) {
        let newest = self.sight.newest();
        let lacks_majority = newest.is_none_or(|(roster, voters)| voters < roster.majority());
        if lacks_majority != self.lacks_majority {
            self.lacks_majority = lacks_majority;
            self.events.push_back(match lacks_majority {
                true => WatchEvent::TooFewVoters { reason: self.too_few() },
                false => WatchEvent::MajorityVotes,
            });
        }
        let Some((roster, _)) = newest else { return };
        let problems: Vec<_> = roster
            .seats
            .iter()
            .map(|seat| (seat.address.clone(), self.problem(roster, seat)))
            .collect();
        for (node, problem) in problems {
            if problem.is_err() {
                self.silent.insert(node.clone());
            } else if self.silent.remove(&node) {
                self.events.push_back(WatchEvent::AnswersAgain { node: node.clone() });
            }
            let reason = match problem {
                Ok(None) => {
                    self.left_alone.remove(&node);
                    continue;
                }
                Ok(Some(reason)) | Err(reason) => reason,
            };
            if self.left_alone.insert(node.clone(), reason.clone()).as_ref() != Some(&reason) {
                self.events.push_back(WatchEvent::LeftAlone { node, reason });
            }
        }
    }

    /// Why a member has no vote and does not get one now; `None` if it has one, or waits for it.
    ///
    /// # Errors
    /// The member does not answer.
    fn problem(&self, roster: &Roster, seat: &Seat) -> Result<Option<String>, String> {
        let peer =
            self.operator.at_seat(&self.sight, roster, seat).map_err(|silent| silent.reason)?;
        if peer.votes() && peer.roster() == Some(roster) || self.is_waiting(&peer.process) {
            return Ok(None);
        }
        let failure = self.failures.get(&peer.process).cloned();
        let unfit = || peer.unfit.map(|unfit| unfit.reason().to_owned());
        let reason = || peer.state(Some(roster)).reason().to_owned();
        Ok(Some(failure.or_else(unfit).unwrap_or_else(reason)))
    }

    /// Checks that a server can take a member's seat: it has none, unless it has taken this one before.
    /// Otherwise nothing would happen, and the member would keep its seat.
    pub(super) fn check_can_take_seat(&self) -> Result<(), OperatorError> {
        let (Some([seat, address]), Some((roster, _))) = (&self.relocation, self.sight.newest())
        else {
            return Ok(());
        };
        let of_address = |address: &str| roster.seats.iter().find(|own| own.address == address);
        let of_process = self.sight.at(address).and_then(|peer| roster.seat_of(&peer.process));
        match of_process.or_else(|| of_address(address)) {
            Some(own) if [&own.address, address] != [seat; 2] && of_address(seat).is_some() => {
                Err(OperatorError::Invalid(format!(
                    "{address} has a seat already, that of {}, and can't take the seat of {seat}: name a \
                     server that is no member",
                    own.address
                )))
            }
            _ => Ok(()),
        }
    }

    /// What has become of the takeover for one address; `None` while it waits.
    pub(super) fn outcome(&mut self) -> Option<Result<CopiedCounters, OperatorError>> {
        let [seat, address] = self.relocation.as_ref()?;
        let unavailable = |reason| Some(Err(OperatorError::Unavailable(reason)));
        let Some(peer) = self.sight.at(address) else {
            // It may restart once more.
            let silence = self.sight.silence(address).to_string();
            return if self.is_waiting_for_any() { None } else { unavailable(silence) };
        };
        let Some((roster, voters)) = self.sight.newest() else {
            return unavailable(self.sight.no_cluster());
        };
        if voters < roster.majority() {
            return unavailable(self.too_few());
        }
        if peer.votes() && peer.roster() == Some(roster) {
            return Some(Ok(self.copied.remove(&peer.process).unwrap_or_default()));
        }
        if self.is_waiting(&peer.process) {
            return None;
        }
        if let Err(unfit) = OperatorError::if_unfit(peer) {
            return Some(Err(unfit));
        }
        if let Some(other) = peer.cluster().filter(|own| *own != roster.cluster) {
            return unavailable(format!(
                "{address} belongs to cluster {other}, the others to cluster {}: to move it, delete its \
                 key {} first",
                roster.cluster,
                Keys::NODE
            ));
        }
        if !roster.seats.iter().any(|own| own.address == *seat || own.process == peer.process) {
            let members: Vec<_> = roster.seats.iter().map(|seat| seat.address.as_str()).collect();
            return Some(Err(OperatorError::Invalid(format!(
                "{seat} is no member of the cluster, whose members are {}: to put a server in place of \
                 one, run `lock-client node admit --node SERVER --instead-of MEMBER`",
                members.join(", ")
            ))));
        }
        if self.is_waiting_for_any() {
            return None;
        }
        let votes = |own: &&Seat| self.sight.votes(&own.process, roster);
        let voteless: Vec<_> = roster.seats.iter().filter(|own| !votes(own)).collect();
        let others = roster.seats.iter().filter(|own| own.address != *seat);
        let staying = others.filter(votes).count();
        let moves = seat != address && voteless.iter().all(|own| own.address != *seat);
        let reason = if moves && !voteless.is_empty() {
            let others: Vec<_> = voteless.iter().map(|own| own.address.as_str()).collect();
            format!(
                "{seat} votes, and stays until {} votes, or is replaced first",
                others.join(", ")
            )
        } else if staying < roster.majority() {
            format!(
                "{} of the members that stay must vote, and {staying} do ({})",
                roster.majority(),
                self.sight.reasons(Some(roster))
            )
        } else {
            let state = || peer.state(Some(roster)).reason().to_owned();
            self.failures.get(&peer.process).cloned().unwrap_or_else(state)
        };
        unavailable(format!("{address} is not admitted yet: {reason}"))
    }

    /// Says that too few members vote, and what to do.
    fn too_few(&self) -> String {
        let Some((roster, voters)) = self.sight.newest() else {
            // A start would give up the votes of a cluster that may run.
            let no_cluster = self.sight.no_cluster();
            return format!("no node can be admitted: {no_cluster} ({})", self.sight.reasons(None));
        };
        let (majority, all) = (roster.majority(), roster.seats.len());
        format!(
            "no node can be admitted, because only a majority knows all issued tokens: \
             {voters} of {all} members vote, and {majority} must ({}). If they don't come back with their \
             vote, a person must decide: see `lock-client node init --again {}`",
            self.sight.reasons(Some(roster)),
            roster.cluster
        )
    }
}
