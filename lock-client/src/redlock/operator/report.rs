//! What people should know of the takeovers of a cluster.

use std::{fmt, time::Duration};

use super::{counters::CopiedCounters, error::OperatorError, watcher::Watcher};
use crate::{
    redis::keys::Keys,
    redlock::{
        machines::takeover::{Reason, Rest},
        node_urls::NodeUrl,
        roster::{Roster, Seat},
    },
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
            .map(|seat| (seat.address.clone(), self.problem(roster, &seat.address, &seat.process)))
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
    fn problem(
        &self,
        roster: &Roster,
        address: &str,
        process: &str,
    ) -> Result<Option<String>, String> {
        // A process that has another seat is no second voter.
        let at_address =
            || self.sight.at(address).filter(|peer| roster.seat_of(&peer.process).is_none());
        let peer = self.sight.with(process).or_else(at_address);
        let Some(peer) = peer else { return Err(self.sight.silence(address).reason) };
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
    pub(super) fn check_can_take_seat(
        &self,
        address: &str,
        instead_of: Option<&NodeUrl>,
    ) -> Result<(), OperatorError> {
        let (Some(old), Some((roster, _))) = (instead_of, self.sight.newest()) else {
            return Ok(());
        };
        let process = self.sight.at(address).map(|peer| &peer.process);
        let has_this = |seat: &Seat| seat.address == address || process == Some(&seat.process);
        let is_member = roster.seats.iter().any(|seat| seat.address == old.address);
        match roster.seats.iter().find(|seat| has_this(seat)) {
            Some(own) if is_member && old.address != address => {
                Err(OperatorError::Invalid(format!(
                    "{address} has a seat already, that of {}, and can't take the seat of {}: name a \
                     server that is no member",
                    own.address, old.address
                )))
            }
            _ => Ok(()),
        }
    }

    /// What has become of the takeover for this address; `None` while it waits.
    pub(super) fn outcome(
        &mut self,
        address: &str,
        instead_of: Option<&NodeUrl>,
    ) -> Option<Result<CopiedCounters, OperatorError>> {
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
        let seat = instead_of.map_or(address, |old| &old.address);
        if !roster.seats.iter().any(|own| own.address == seat || own.process == peer.process) {
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
        match self.blocked(seat) {
            Some(Reason::AnotherFirst) => {
                let votes = |own: &&Seat| self.sight.votes(&own.process, roster);
                let others = roster.seats.iter().filter(|own| !votes(own));
                let others: Vec<_> = others.map(|own| own.address.as_str()).collect();
                unavailable(format!(
                    "{address} is not admitted yet: {seat} votes, and stays until {} votes, or is \
                     replaced first",
                    others.join(", ")
                ))
            }
            Some(Reason::TooFewVoters) => {
                let votes = |own: &&Seat| self.sight.votes(&own.process, roster);
                let staying = roster.seats.iter().filter(|own| own.address != seat).filter(votes);
                unavailable(format!(
                    "{address} is not admitted yet: {} of the members that stay must vote, and {} do \
                     ({})",
                    roster.majority(),
                    staying.count(),
                    self.sight.reasons(Some(roster))
                ))
            }
            _ => {
                let failure = self.failures.get(&peer.process).cloned();
                let failure =
                    failure.unwrap_or_else(|| peer.state(Some(roster)).reason().to_owned());
                unavailable(format!("{address} is not admitted yet: {failure}"))
            }
        }
    }

    /// Why the member at an address has no vote, or has not moved.
    fn blocked(&self, address: &str) -> Option<Reason> {
        let Some(Rest::Blocked(blocked)) = &self.at_rest else { return None };
        let mut blocked = blocked.iter().filter(|(seat, _)| seat.address == address);
        blocked.next().map(|(_, reason)| *reason)
    }

    /// Says that too few members vote, and what to do.
    fn too_few(&self) -> String {
        let Some((roster, voters)) = self.sight.newest() else {
            // A start would give up the votes of a cluster that may run.
            let no_cluster = self.sight.no_cluster();
            return format!("no node can be admitted: {no_cluster} ({})", self.sight.reasons(None));
        };
        let (majority, all) = (roster.majority(), roster.seats.len());
        let undecided = match &self.at_rest {
            Some(Rest::Undecided(rosters)) => {
                format!(", and {} changes have begun at once", rosters.len())
            }
            _ => String::new(),
        };
        format!(
            "no node can be admitted, because only a majority knows all issued tokens: \
             {voters} of {all} members vote, and {majority} must{undecided} ({}). If they don't come \
             back with their vote, a person must decide: see `lock-client node init --again`",
            self.sight.reasons(Some(roster))
        )
    }
}
