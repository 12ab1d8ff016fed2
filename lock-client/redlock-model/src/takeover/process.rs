//! A process: its data, and the requests of operators that change them.
//!
//! Each method has the effect of the request of that name in `lock-client` (`operator/peer.rs`), if the record
//! is as that operator has seen it. Otherwise a request does nothing there. Both ask [`Standing`] what is
//! possible.

use super::config::Fault;
use crate::{
    node::Node,
    redlock::{
        machines::takeover::{Answer, Command},
        roster::{Roster, Standing},
    },
};

/// A process that runs on a node, or may still run there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) id: u8,
    pub(crate) address: u8,
    /// The keys of the lock.
    pub(crate) node: Node,
    /// The roster in its data, which may be those of another process.
    pub(crate) roster: Option<Roster>,
    /// Whether its data say that it may vote.
    pub(crate) is_admitted: bool,
}

impl Process {
    /// The roster of this process: it names it.
    pub(crate) fn own_roster(&self) -> Option<&Roster> {
        self.roster.as_ref().filter(|roster| roster.seat_of(&self.id).is_some())
    }

    pub(crate) fn votes(&self) -> bool {
        self.is_admitted && self.own_roster().is_some()
    }

    pub(crate) fn answer(&self) -> Answer {
        Answer {
            address: self.address,
            process: self.id,
            roster: self.roster,
            is_admitted: self.votes(),
            is_fit: true,
        }
    }

    /// Runs a request that names this process.
    pub(crate) fn run(&mut self, command: &Command, fault: Option<Fault>) {
        match command {
            Command::Prepare { roster, .. } => self.prepare(roster, fault),
            Command::Close { process, from, to } => self.close(*process, from, to, fault),
            Command::Admit { roster, .. } => {
                let ignores_roster = fault == Some(Fault::AdmitIgnoresRoster);
                if self.standing().may_be_admitted(roster)
                    || ignores_roster && self.roster.is_some()
                {
                    self.roster = Some(*roster);
                    self.is_admitted = true;
                }
            }
            _ => {}
        }
    }

    /// What decides whether a request is possible, as in `lock-client`. Nobody gives up a vote here.
    pub(crate) fn standing(&self) -> Standing<'_> {
        let (roster, votes) = (self.roster.as_ref(), self.votes());
        Standing { process: &self.id, roster, votes, retired: None }
    }

    /// Takes the vote and the locks away.
    fn prepare(&mut self, roster: &Roster, fault: Option<Fault>) {
        let is_taken = self.own_roster().is_some_and(|own| match fault {
            Some(Fault::PrepareGoesBack) => roster.term < own.term,
            Some(Fault::PrepareTakesVoters) => roster.term == own.term,
            _ => false,
        });
        if !self.standing().may_be_prepared(roster) && !is_taken {
            return;
        }
        self.roster = Some(*roster);
        self.is_admitted = false;
        if fault != Some(Fault::KeepsLocks) {
            self.node.lock = None;
        }
    }

    /// Exchanges exactly one roster for another. With a broken rule, another process than the named one may
    /// receive this, or any roster of an earlier or the same term goes.
    fn close(&mut self, process: u8, from: &Roster, to: &Roster, fault: Option<Fault>) {
        let compares_term = fault == Some(Fault::CloseComparesTerm);
        let is_earlier = |own: &&Roster| own.term <= to.term;
        let goes = self.roster.as_ref().filter(is_earlier).filter(|_| compares_term);
        let roster = if goes.is_some() { Some(from) } else { self.roster.as_ref() };
        let named = Standing { process: &process, roster, ..self.standing() };
        if named.may_be_closed(from, to) {
            self.roster = Some(*to);
        }
    }
}
