//! The votes of one round, and what they come to.

use std::{collections::HashMap, time::Duration};

use fence::Token;

use super::node::Absence;

/// The votes of one round.
pub(super) struct Tally {
    votes: Vec<Vote>,
    /// The highest of the first majority of grants.
    token: Option<Token>,
}

/// How one node has voted, so far.
#[derive(Clone, Debug)]
enum Vote {
    /// It hasn't been heard of.
    Open,
    /// It gave the lock, and counted this.
    Granted(Token),
    /// It gave the lock, and is asked to seal the token.
    Sealing,
    /// It gave the lock, and counts on from the token or above: nobody gets as low a token there.
    Sealed,
    /// Somebody else has its lock.
    Refused { holder: String, remaining: Option<Duration> },
    /// It gave the lock too late to count: its count is above the token.
    TooHigh,
    /// The lock was not ours any more when it was to seal.
    Lost,
    /// It didn't answer, or has no vote.
    Absent(Absence),
}

/// What a node has said.
#[derive(Debug)]
pub(super) enum Heard {
    Granted(Token),
    Refused { holder: String, remaining: Option<Duration> },
    Sealed(bool),
    Absent(Absence),
}

/// A node that gave the lock, and has to seal the token.
#[derive(Debug, PartialEq)]
pub(super) struct Sealing {
    pub(super) node: usize,
    /// Its own.
    pub(super) grant: Token,
    pub(super) token: Token,
}

/// What the votes come to.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// That is not known yet.
    Open,
    /// A majority has sealed the token.
    Won(Token),
    /// A majority can't be reached any more.
    Missed,
}

/// Why a majority was missed.
#[derive(Debug)]
pub(super) enum Missed {
    /// Somebody else has a majority, for so long.
    Held { remaining: Option<Duration> },
    /// Nobody is seen to have a majority; for so long, there may be none.
    Split { remaining: Option<Duration> },
    /// Too few have answered: these have not, and why.
    Absent(Vec<(usize, Absence)>),
}

impl Tally {
    pub(super) fn of(nodes: usize) -> Self {
        Self { votes: vec![Vote::Open; nodes], token: None }
    }

    /// Counts what a node has said. Answers which nodes have to seal the token now.
    pub(super) fn count(&mut self, node: usize, heard: Heard) -> Vec<Sealing> {
        self.votes[node] = match heard {
            Heard::Granted(grant) => Vote::Granted(grant),
            Heard::Refused { holder, remaining } => Vote::Refused { holder, remaining },
            Heard::Sealed(true) => Vote::Sealed,
            Heard::Sealed(false) => Vote::Lost,
            Heard::Absent(why) => Vote::Absent(why),
        };
        if self.token.is_none() && self.granted().count() >= self.majority() {
            self.token = self.granted().map(|(_, grant)| grant).max();
        }
        self.token.map_or(Vec::new(), |token| self.to_seal(token))
    }

    /// Compares the grants with the token: those that are it are sealed, and those below it have to be.
    fn to_seal(&mut self, token: Token) -> Vec<Sealing> {
        let granted: Vec<_> = self.granted().collect();
        for &(node, grant) in &granted {
            self.votes[node] = match grant.cmp(&token) {
                std::cmp::Ordering::Less => Vote::Sealing,
                std::cmp::Ordering::Equal => Vote::Sealed,
                std::cmp::Ordering::Greater => Vote::TooHigh,
            };
        }
        let below = granted.into_iter().filter(|&(_, grant)| grant < token);
        below.map(|(node, grant)| Sealing { node, grant, token }).collect()
    }

    pub(super) fn verdict(&self) -> Verdict {
        let count =
            |counts: fn(&Vote) -> bool| self.votes.iter().filter(|vote| counts(vote)).count();
        match self.token {
            Some(token) if count(|vote| matches!(vote, Vote::Sealed)) >= self.majority() => {
                Verdict::Won(token)
            }
            _ => {
                let may_count = count(|vote| {
                    matches!(vote, Vote::Open | Vote::Granted(_) | Vote::Sealing | Vote::Sealed)
                });
                if may_count < self.majority() { Verdict::Missed } else { Verdict::Open }
            }
        }
    }

    /// The highest count that was heard of.
    pub(super) fn highest(&self) -> Option<Token> {
        self.token.max(self.granted().map(|(_, grant)| grant).max())
    }

    /// Why a majority was missed.
    pub(super) fn missed(self) -> Missed {
        let majority = self.majority();
        let open = |vote: &Vote| matches!(vote, Vote::Open);
        let absent = |(node, vote): (usize, &Vote)| match vote {
            Vote::Absent(why) => Some((node, why.clone())),
            _ => None,
        };
        let absent: Vec<_> = self.votes.iter().enumerate().filter_map(absent).collect();
        let silent = self.votes.iter().filter(|vote| open(vote)).count();
        if self.votes.len() - absent.len() - silent < majority {
            return Missed::Absent(absent);
        }
        let mut holders: HashMap<&str, usize> = HashMap::new();
        // When each node is free; `None` where that is not known.
        let mut free_in = Vec::new();
        for vote in &self.votes {
            match vote {
                Vote::Refused { holder, remaining } => {
                    *holders.entry(holder).or_default() += 1;
                    free_in.push(*remaining);
                }
                Vote::Absent(_) | Vote::Open => free_in.push(None),
                _ => free_in.push(Some(Duration::ZERO)),
            }
        }
        free_in.sort_by_key(|free_in| free_in.unwrap_or(Duration::MAX));
        let remaining = free_in[majority - 1];
        if holders.values().any(|&nodes| nodes >= majority) {
            Missed::Held { remaining }
        } else {
            Missed::Split { remaining }
        }
    }

    fn granted(&self) -> impl Iterator<Item = (usize, Token)> {
        let granted = |(node, vote): (usize, &Vote)| match vote {
            Vote::Granted(grant) => Some((node, *grant)),
            _ => None,
        };
        self.votes.iter().enumerate().filter_map(granted)
    }

    fn majority(&self) -> usize {
        majority(self.votes.len())
    }
}

/// How many nodes are more than half of them.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}
