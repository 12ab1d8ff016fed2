//! The count of one round's votes, and its outcome.

use std::{collections::HashMap, time::Duration};

use fence::Token;
use tokio::sync::oneshot;

use super::{
    machines::acquire::{self, Acquire, Command, Vote},
    majority::majority,
    node_error::NodeError,
};
use crate::backend::Contention;

/// The votes of one round.
pub(super) struct Tally {
    acquire: Acquire,
    /// Whether no majority can seal a token any more.
    has_failed: bool,
    against: Vec<Option<Against>>,
}

/// Why a node has not granted the lock.
#[derive(Clone, Debug)]
pub(super) enum Against {
    /// Another client has the node's lock.
    Rejected { holder: String, remaining: Option<Duration> },
    /// The node did not answer, or has no vote.
    Failed(NodeError),
}

impl From<NodeError> for Against {
    fn from(error: NodeError) -> Self {
        Self::Failed(error)
    }
}

/// A node's answer to the request for a grant or for a seal, or why it has not granted the lock. A rejected
/// seal is an answer.
pub(super) type Answer = Result<acquire::Answer, Against>;

/// The outcome of one round.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A majority has sealed a token. The round releases the lock again unless the token is accepted in time.
    Sealed { token: Token, accepted: oneshot::Sender<()> },
    /// Another client holds the lock on a majority, until then.
    Held(Contention),
    /// No other client is known to hold a majority. Until then, there may be no majority of free
    /// nodes.
    Split(Contention),
    /// Too few nodes have answered. These are the others, with their errors.
    TooFewAnswers(Vec<(usize, NodeError)>),
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self { acquire: Acquire::new(nodes), has_failed: false, against: vec![None; nodes] }
    }

    /// Counts a node's answer. Returns what the round must do now.
    pub(super) fn count(&mut self, node: usize, answer: Answer) -> Vec<Command> {
        let vote = answer.unwrap_or_else(|reason| {
            self.against[node] = Some(reason);
            acquire::Answer::Rejected
        });
        let commands = self.acquire.on(node, vote);
        self.has_failed |= commands.contains(&Command::Fail);
        commands
    }

    /// Whether no majority is possible any more, and it is known whether another client has one.
    pub(super) fn has_failed(&self) -> bool {
        let votes = &self.acquire.votes;
        let open = votes.iter().filter(|vote| **vote == Vote::Open).count();
        let majority = majority(votes.len());
        self.has_failed && !is_undecided(self.most_of_another(), open, majority)
    }

    /// Counts the nodes as failed that have not answered the request for a grant or for a seal.
    pub(super) fn give_up(&mut self) {
        for (against, vote) in self.against.iter_mut().zip(&self.acquire.votes) {
            if let Vote::Open | Vote::Sealing = vote {
                *against = Some(Against::Failed(NodeError::timed_out()));
            }
        }
    }

    /// The token, or the highest grant if there is no token.
    pub(super) fn highest(&self) -> Option<Token> {
        self.acquire.highest()
    }

    /// The round's outcome without a majority.
    pub(super) fn without_majority(&self) -> Outcome {
        let majority = majority(self.against.len());
        let failed = |(node, against): (usize, &Option<Against>)| match against {
            Some(Against::Failed(error)) => Some((node, error.clone())),
            _ => None,
        };
        let failed: Vec<_> = self.against.iter().enumerate().filter_map(failed).collect();
        if self.against.len() - failed.len() < majority {
            return Outcome::TooFewAnswers(failed);
        }
        // When each node will be free; `None` if that is unknown.
        let free_in = self.against.iter().zip(&self.acquire.votes).map(|seen| match seen {
            (Some(Against::Rejected { remaining, .. }), _) => *remaining,
            (Some(Against::Failed(_)), _) | (None, Vote::Open) => None,
            (None, _) => Some(Duration::ZERO),
        });
        let mut free_in: Vec<_> = free_in.collect();
        free_in.sort_by_key(|free_in| free_in.unwrap_or(Duration::MAX));
        let contention = Contention { remaining: free_in[majority - 1], ahead: None, nap: None };
        if self.most_of_another() >= majority {
            Outcome::Held(contention)
        } else {
            Outcome::Split(contention)
        }
    }

    /// The largest number of rejecting nodes on which one and the same holder has the lock.
    fn most_of_another(&self) -> usize {
        let mut nodes: HashMap<&str, usize> = HashMap::new();
        for against in self.against.iter().flatten() {
            if let Against::Rejected { holder, .. } = against {
                *nodes.entry(holder).or_default() += 1;
            }
        }
        nodes.into_values().max().unwrap_or_default()
    }
}

/// Whether the nodes that have not answered yet decide whether `count` reaches the majority.
pub(super) fn is_undecided(count: usize, outstanding: usize, majority: usize) -> bool {
    count < majority && count + outstanding >= majority
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn granted(grant: u64) -> Answer {
        Ok(acquire::Answer::Granted(token(grant)))
    }

    fn rejected(holder: &str, seconds: u64) -> Answer {
        let remaining = Some(Duration::from_secs(seconds));
        Err(Against::Rejected { holder: holder.to_owned(), remaining })
    }

    fn failed() -> Answer {
        Err(Against::Failed(NodeError::NoAnswer("down".to_owned())))
    }

    /// Counts the answers of the first nodes, in order. No seal and no token follows from them.
    fn tally(nodes: usize, answers: Vec<Answer>) -> Tally {
        let mut tally = Tally::new(nodes);
        for (node, answer) in answers.into_iter().enumerate() {
            assert!(matches!(tally.count(node, answer)[..], [] | [Command::Fail]));
        }
        tally
    }

    #[test]
    fn token_is_reported_once_and_a_rejected_seal_may_end_the_round() {
        let mut sealed = tally(5, vec![granted(34), granted(34)]);
        assert_eq!(sealed.count(2, granted(34)), [Command::Report(token(34))]);
        assert_eq!(sealed.count(3, granted(34)), []);
        let mut unsealed = tally(3, vec![failed(), granted(34)]);
        assert!(matches!(unsealed.count(2, granted(36))[..], [Command::Seal(_)]));
        assert_eq!(unsealed.count(1, Ok(acquire::Answer::Rejected)), [Command::Fail]);
    }

    #[test]
    fn round_goes_on_while_a_missing_answer_decides_who_has_a_majority() {
        let has_failed = |answers| tally(3, answers).has_failed();
        assert!(!has_failed(vec![failed(), rejected("a", 9)]), "a may have two nodes");
        assert!(has_failed(vec![failed(), rejected("a", 9), rejected("a", 9)]));
        assert!(has_failed(vec![rejected("a", 9), rejected("a", 9)]));
        assert!(has_failed(vec![failed(), failed()]), "no client can have two nodes");
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
        let held = outcome(vec![rejected("a", 9), granted(34), rejected("a", 5)]);
        let seconds = |contention: &Contention| contention.remaining.map(|left| left.as_secs());
        assert!(
            matches!(&held, Outcome::Held(contention) if seconds(contention) == Some(5)),
            "two nodes are free by then: {held:?}"
        );
        let split = outcome(vec![rejected("a", 9), granted(34), rejected("b", 5)]);
        assert!(matches!(split, Outcome::Split(_)), "{split:?}");
        let unknown = outcome(vec![rejected("a", 9), failed(), granted(34)]);
        assert!(
            matches!(&unknown, Outcome::Split(contention) if seconds(contention) == Some(9)),
            "a may have the node that is down: {unknown:?}"
        );
        let down = outcome(vec![failed(), granted(34), failed()]);
        assert!(matches!(down, Outcome::TooFewAnswers(failed) if failed.len() == 2));
    }
}
