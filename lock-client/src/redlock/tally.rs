//! The count of one round's votes, and the token that follows from them.

use std::{collections::HashMap, time::Duration};

use fence::Token;

use super::{
    majority::{is_undecided, majority},
    node_error::NodeError,
    outcome::Outcome,
};
use crate::backend::Contention;

/// The votes of one round.
pub(super) struct Tally {
    votes: Vec<Vote>,
    /// The highest of the first majority of grants.
    token: Option<Token>,
}

/// The vote of one node, so far.
#[derive(Clone, Debug)]
enum Vote {
    /// The node has not answered yet.
    Open,
    /// The node granted the lock; this is its counter.
    Granted(Token),
    /// The node granted the lock, and was asked to seal the token.
    Sealing,
    /// The node granted the lock, and its counter has reached the token. It never grants that token
    /// or a lower one again.
    Sealed,
    /// Another client has the node's lock.
    Refused { holder: String, remaining: Option<Duration> },
    /// The node granted the lock too late to count: its grant is above the token.
    TooHigh,
    /// The lock was not ours any more when the node should seal the token.
    Lost,
    /// The node did not answer, or has no vote.
    Failed(NodeError),
}

/// A node's answer.
#[derive(Debug)]
pub(super) enum Answer {
    Granted(Token),
    Refused {
        holder: String,
        remaining: Option<Duration>,
    },
    Sealed,
    /// The lock was not ours any more when the node should seal the token.
    NotSealed,
    Failed(NodeError),
}

/// A seal that is needed: the node granted the lock, and its grant is below the token.
#[derive(Debug, PartialEq)]
pub(super) struct Seal {
    pub(super) node: usize,
    /// The node's own grant.
    pub(super) grant: Token,
    pub(super) token: Token,
}

/// The result of the votes counted so far.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// It depends on answers that have not arrived.
    Open,
    /// A majority has sealed the token.
    Sealed(Token),
    /// No majority is possible any more, and it is known whether another client has one.
    NoMajority,
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self { votes: vec![Vote::Open; nodes], token: None }
    }

    /// Counts a node's answer. Returns the seals that are needed now.
    pub(super) fn count(&mut self, node: usize, answer: Answer) -> Vec<Seal> {
        let vote = &mut self.votes[node];
        match &answer {
            Answer::Granted(_) | Answer::Refused { .. } => {
                assert!(matches!(vote, Vote::Open), "a node votes once in a round, not {vote:?}");
            }
            Answer::Sealed | Answer::NotSealed => {
                assert!(matches!(vote, Vote::Sealing), "nobody asked it to seal: {vote:?}");
            }
            Answer::Failed(_) => {}
        }
        *vote = match answer {
            Answer::Granted(grant) => Vote::Granted(grant),
            Answer::Refused { holder, remaining } => Vote::Refused { holder, remaining },
            Answer::Sealed => Vote::Sealed,
            Answer::NotSealed => Vote::Lost,
            Answer::Failed(error) => Vote::Failed(error),
        };
        if self.token.is_none() && self.granted().count() >= self.majority() {
            self.token = self.granted().map(|(_, grant)| grant).max();
        }
        self.token.map_or(Vec::new(), |token| self.compare_grants(token))
    }

    /// Compares new grants with the token. A grant that equals the token is sealed already, and a
    /// lower one needs a seal. A higher one came after the first majority, and never counts. Before
    /// that grant, the node may have locked for another client, whose token would be above ours
    /// although it is older.
    fn compare_grants(&mut self, token: Token) -> Vec<Seal> {
        let granted: Vec<_> = self.granted().collect();
        for &(node, grant) in &granted {
            self.votes[node] = match grant.cmp(&token) {
                std::cmp::Ordering::Less => Vote::Sealing,
                std::cmp::Ordering::Equal => Vote::Sealed,
                std::cmp::Ordering::Greater => Vote::TooHigh,
            };
        }
        let below = granted.into_iter().filter(|&(_, grant)| grant < token);
        below.map(|(node, grant)| Seal { node, grant, token }).collect()
    }

    pub(super) fn verdict(&self) -> Verdict {
        let count =
            |counts: fn(&Vote) -> bool| self.votes.iter().filter(|vote| counts(vote)).count();
        if let Some(token) = self.token
            && count(|vote| matches!(vote, Vote::Sealed)) >= self.majority()
        {
            return Verdict::Sealed(token);
        }
        let open = count(|vote| matches!(vote, Vote::Open));
        let ours = count(|vote| matches!(vote, Vote::Granted(_) | Vote::Sealing | Vote::Sealed));
        let may_be_ours = ours + open >= self.majority();
        let may_be_anothers = is_undecided(self.most_of_another(), open, self.majority());
        if may_be_ours || may_be_anothers { Verdict::Open } else { Verdict::NoMajority }
    }

    /// Counts the nodes as failed that have not answered the request for a grant or for a seal.
    pub(super) fn give_up(&mut self) {
        for vote in &mut self.votes {
            if let Vote::Open | Vote::Sealing = vote {
                *vote = Vote::Failed(NodeError::timed_out());
            }
        }
    }

    /// The token, or the highest grant if there is no token.
    pub(super) fn highest(&self) -> Option<Token> {
        self.token.max(self.granted().map(|(_, grant)| grant).max())
    }

    /// The round's outcome without a majority.
    pub(super) fn without_majority(&self) -> Outcome {
        let majority = self.majority();
        let failed = |(node, vote): (usize, &Vote)| match vote {
            Vote::Failed(error) => Some((node, error.clone())),
            _ => None,
        };
        let failed: Vec<_> = self.votes.iter().enumerate().filter_map(failed).collect();
        if self.votes.len() - failed.len() < majority {
            return Outcome::TooFewAnswers(failed);
        }
        // When each node will be free; `None` if that is unknown.
        let mut free_in = Vec::new();
        for vote in &self.votes {
            match vote {
                Vote::Refused { remaining, .. } => free_in.push(*remaining),
                Vote::Failed(_) | Vote::Open => free_in.push(None),
                _ => free_in.push(Some(Duration::ZERO)),
            }
        }
        free_in.sort_by_key(|free_in| free_in.unwrap_or(Duration::MAX));
        let contention = Contention { remaining: free_in[majority - 1], ahead: None, nap: None };
        if self.most_of_another() >= majority {
            Outcome::Held(contention)
        } else {
            Outcome::Split(contention)
        }
    }

    /// The largest number of refusing nodes on which one and the same holder has the lock.
    fn most_of_another(&self) -> usize {
        let mut nodes: HashMap<&str, usize> = HashMap::new();
        for vote in &self.votes {
            if let Vote::Refused { holder, .. } = vote {
                *nodes.entry(holder).or_default() += 1;
            }
        }
        nodes.into_values().max().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn granted(grant: u64) -> Answer {
        Answer::Granted(token(grant))
    }

    fn refused(holder: &str, seconds: u64) -> Answer {
        let remaining = Some(Duration::from_secs(seconds));
        Answer::Refused { holder: holder.to_owned(), remaining }
    }

    fn failed() -> Answer {
        Answer::Failed(NodeError::NoAnswer("down".to_owned()))
    }

    /// Counts the answers of the first nodes, in order. None of them needs a seal.
    fn tally(nodes: usize, answers: Vec<Answer>) -> Tally {
        let mut tally = Tally::new(nodes);
        for (node, answer) in answers.into_iter().enumerate() {
            assert_eq!(tally.count(node, answer), []);
        }
        tally
    }

    #[test]
    fn majority_of_equal_grants_needs_no_seal() {
        assert_eq!(tally(5, vec![granted(34), granted(34)]).verdict(), Verdict::Open);
        let sealed = tally(5, vec![granted(34), granted(34), granted(34)]);
        assert_eq!(sealed.verdict(), Verdict::Sealed(token(34)));
    }

    #[test]
    fn token_is_sealed_once_a_majority_has_sealed_it() {
        let mut tally = tally(3, vec![granted(34)]);
        let seals = [Seal { node: 0, grant: token(34), token: token(36) }];
        assert_eq!(tally.count(2, granted(36)), seals);
        assert_eq!(tally.verdict(), Verdict::Open);
        let seals = [Seal { node: 1, grant: token(30), token: token(36) }];
        assert_eq!(tally.count(1, granted(30)), seals, "a later grant is sealed, too");
        assert_eq!(tally.count(0, Answer::NotSealed), []);
        assert_eq!(tally.verdict(), Verdict::Open);
        assert_eq!(tally.count(1, Answer::Sealed), []);
        assert_eq!(tally.verdict(), Verdict::Sealed(token(36)));
    }

    #[test]
    fn grant_above_the_token_does_not_count() {
        let mut tally = tally(5, vec![granted(34), granted(34)]);
        assert_eq!(tally.count(2, granted(33)).len(), 1);
        assert_eq!(tally.count(3, granted(40)), [], "the node may have issued token 39 before");
        assert_eq!(tally.count(2, Answer::NotSealed), []);
        assert_eq!(tally.verdict(), Verdict::Open);
        assert_eq!(tally.count(4, failed()), []);
        assert_eq!(tally.verdict(), Verdict::NoMajority);
        assert_eq!(tally.highest(), Some(token(34)));
    }

    #[test]
    fn verdict_is_open_while_a_missing_answer_decides_who_has_a_majority() {
        let verdict = |answers| tally(3, answers).verdict();
        assert_eq!(verdict(vec![failed(), refused("a", 9)]), Verdict::Open, "a may have two nodes");
        assert_eq!(verdict(vec![failed(), refused("a", 9), refused("a", 9)]), Verdict::NoMajority);
        assert_eq!(verdict(vec![refused("a", 9), refused("a", 9)]), Verdict::NoMajority);
        assert_eq!(
            verdict(vec![failed(), failed()]),
            Verdict::NoMajority,
            "no client can have two nodes"
        );
    }

    #[test]
    fn nodes_that_answer_no_seal_in_time_are_no_rivals() {
        let mut tally = tally(3, vec![granted(34)]);
        assert_eq!(tally.count(1, granted(35)).len(), 1);
        assert_eq!(tally.count(2, granted(33)).len(), 1);
        tally.give_up();
        let unsealed = tally.without_majority();
        assert!(matches!(&unsealed, Outcome::TooFewAnswers(failed) if failed.len() == 2));
        assert_eq!(tally.highest(), Some(token(35)));
    }

    #[test]
    fn lock_is_held_only_if_one_holder_has_a_majority() {
        let outcome = |answers| tally(3, answers).without_majority();
        let held = outcome(vec![refused("a", 9), granted(34), refused("a", 5)]);
        let seconds = |contention: &Contention| contention.remaining.map(|left| left.as_secs());
        assert!(
            matches!(&held, Outcome::Held(contention) if seconds(contention) == Some(5)),
            "two nodes are free by then: {held:?}"
        );
        let split = outcome(vec![refused("a", 9), granted(34), refused("b", 5)]);
        assert!(matches!(split, Outcome::Split(_)), "{split:?}");
        let unknown = outcome(vec![refused("a", 9), failed(), granted(34)]);
        assert!(
            matches!(&unknown, Outcome::Split(contention) if seconds(contention) == Some(9)),
            "a may have the node that is down: {unknown:?}"
        );
        let down = outcome(vec![failed(), granted(34), failed()]);
        assert!(matches!(down, Outcome::TooFewAnswers(failed) if failed.len() == 2));
    }
}
