//! One round: which grants count, which nodes need a seal, and when the token is sealed.

use std::cmp::Ordering;

use super::{PerNode, Token, majority};

/// The votes of one round, and the token that follows from them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Acquire {
    pub(crate) votes: PerNode<Vote>,
    /// The highest of the first majority of grants.
    pub(crate) token: Option<Token>,
}

/// The vote of one node, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Vote {
    /// The node has not answered yet.
    #[default]
    Open,
    /// The node granted the lock; this is its counter.
    Granted(Token),
    /// The node granted the lock, and was asked to seal the token.
    Sealing,
    /// The node granted the lock, and its counter has reached the token. It never grants that token
    /// or a lower one again.
    Sealed,
    /// The node did not grant the lock, or not in time: then its grant is above the token. Or the
    /// lock was not ours any more when the node should seal the token.
    Against,
}

/// A node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The node granted the lock.
    Granted(Token),
    /// The node sealed the token.
    Sealed,
    /// The node rejected the grant or the seal, or it failed.
    Rejected,
}

/// What the round must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Seal the token on this node.
    Seal(Seal),
    /// Report this token: a majority has sealed it.
    Report(Token),
    /// Give up: no majority can seal a token any more.
    Fail,
}

/// A seal that is needed: the node granted the lock, and its grant is below the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal {
    pub(crate) node: usize,
    /// The node's own grant.
    pub(crate) grant: Token,
    pub(crate) token: Token,
}

impl Acquire {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { votes: (0..nodes).map(|_| Vote::Open).collect(), token: None }
    }

    /// Counts a node's answer.
    pub(crate) fn on(&mut self, node: usize, answer: Answer) -> Vec<Command> {
        let before = (self.is_sealed(), self.may_succeed());
        let vote = &mut self.votes[node];
        *vote = match answer {
            Answer::Granted(grant) => {
                assert_eq!(*vote, Vote::Open, "a node grants once in a round");
                Vote::Granted(grant)
            }
            Answer::Sealed => {
                assert_eq!(*vote, Vote::Sealing, "a node seals when it was asked to");
                Vote::Sealed
            }
            Answer::Rejected => Vote::Against,
        };
        if self.token.is_none() && self.granted().count() >= majority(self.votes.len()) {
            self.token = self.granted().map(|(_, grant)| grant).max();
        }
        let mut commands = self.token.map_or(Vec::new(), |token| self.compare_grants(token));
        match (self.token, before) {
            (Some(token), (false, _)) if self.is_sealed() => commands.push(Command::Report(token)),
            (_, (_, true)) if !self.may_succeed() => commands.push(Command::Fail),
            _ => {}
        }
        commands
    }

    /// Compares new grants with the token. A grant that equals the token is sealed already, and a
    /// lower one needs a seal. A higher one came after the first majority, and never counts. Before
    /// that grant, the node may have locked for another client, whose token would be above ours
    /// although it is older.
    fn compare_grants(&mut self, token: Token) -> Vec<Command> {
        let granted: Vec<_> = self.granted().collect();
        for &(node, grant) in &granted {
            self.votes[node] = match grant.cmp(&token) {
                Ordering::Less => Vote::Sealing,
                Ordering::Equal => Vote::Sealed,
                Ordering::Greater => Vote::Against,
            };
        }
        let below = granted.into_iter().filter(|&(_, grant)| grant < token);
        below.map(|(node, grant)| Command::Seal(Seal { node, grant, token })).collect()
    }

    /// Whether a majority may still seal a token, or has done so.
    fn may_succeed(&self) -> bool {
        let against = self.count(|vote| matches!(vote, Vote::Against));
        self.votes.len() - against >= majority(self.votes.len())
    }

    /// The token, or the highest grant if there is no token. The release raises all counters to it.
    pub(crate) fn highest(&self) -> Option<Token> {
        self.token.max(self.granted().map(|(_, grant)| grant).max())
    }

    fn is_sealed(&self) -> bool {
        self.count(|vote| matches!(vote, Vote::Sealed)) >= majority(self.votes.len())
    }

    fn granted(&self) -> impl Iterator<Item = (usize, Token)> {
        self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
            Vote::Granted(grant) => Some((node, *grant)),
            _ => None,
        })
    }

    fn count(&self, counts: fn(&Vote) -> bool) -> usize {
        self.votes.iter().filter(|vote| counts(vote)).count()
    }
}
