//! A process: its data, and the requests of operators that change them.
//!
//! Each method has the effect of the request of that name in `lock-client` (`operator/peer.rs`), if the record
//! is as that operator has seen it. Otherwise a request does nothing there.

use super::config::Fault;
use crate::{
    node::Node,
    redlock::{
        machines::takeover::{Answer, Command},
        roster::Roster,
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
                let is_same = self.own_roster() == Some(roster);
                if is_same || fault == Some(Fault::AdmitIgnoresRoster) && self.roster.is_some() {
                    self.roster = Some(*roster);
                    self.is_admitted = true;
                }
            }
            _ => {}
        }
    }

    /// Takes the vote and the locks away.
    fn prepare(&mut self, roster: &Roster, fault: Option<Fault>) {
        if let Some(own) = self.own_roster() {
            let is_earlier = roster.term < own.term;
            let is_voter = self.is_admitted && roster.term == own.term;
            let may_go_back = fault == Some(Fault::PrepareGoesBack);
            let takes_voters = fault == Some(Fault::PrepareTakesVoters);
            if is_earlier && !may_go_back || is_voter && !takes_voters || own == roster && !is_voter
            {
                return;
            }
        }
        self.roster = Some(*roster);
        self.is_admitted = false;
        if fault != Some(Fault::KeepsLocks) {
            self.node.lock = None;
        }
    }

    /// Exchanges exactly one roster for another.
    fn close(&mut self, process: u8, from: &Roster, to: &Roster, fault: Option<Fault>) {
        let is_process = process == self.id || fault == Some(Fault::CloseComparesAddress);
        let is_same = match fault {
            Some(Fault::CloseComparesTerm) => {
                self.roster.is_some_and(|roster| roster.term <= to.term)
            }
            _ => self.roster.as_ref() == Some(from),
        };
        if is_process
            && is_same
            && from.seat_of(&process).is_some()
            && to.seat_of(&process).is_some()
        {
            self.roster = Some(*to);
        }
    }
}
