//! The votes of one round, and what they come to.

use std::{collections::HashMap, time::Duration};

use fence::Token;

use super::node::Absence;
use crate::backend::Contention;

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
    /// A majority can't be reached any more, and it is known whether somebody else has one.
    Missed,
}

/// Why a majority was missed.
#[derive(Debug)]
pub(super) enum Missed {
    /// Somebody else has a majority, for so long.
    Held(Contention),
    /// Nobody is seen to have a majority; for so long, there may be none.
    Split(Contention),
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
        self.token.map_or(Vec::new(), |token| self.compare_with(token))
    }

    /// Compares the grants with the token: those that are it are sealed, and those below it have to be.
    fn compare_with(&mut self, token: Token) -> Vec<Sealing> {
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
                let open = count(|vote| matches!(vote, Vote::Open));
                let ours =
                    count(|vote| matches!(vote, Vote::Granted(_) | Vote::Sealing | Vote::Sealed));
                let anothers = self.most_of_another();
                let undecided = |nodes| (nodes..nodes + open).contains(&(self.majority() - 1));
                if ours + open >= self.majority() || undecided(anothers) {
                    Verdict::Open
                } else {
                    Verdict::Missed
                }
            }
        }
    }

    /// Takes those for absent that haven't been heard of.
    pub(super) fn give_up(&mut self) {
        for vote in &mut self.votes {
            if let Vote::Open = vote {
                *vote = Vote::Absent(Absence::silent());
            }
        }
    }

    /// The token, or the highest grant while there is none.
    pub(super) fn highest(&self) -> Option<Token> {
        self.token.max(self.granted().map(|(_, grant)| grant).max())
    }

    /// Why a majority was missed.
    pub(super) fn missed(&self) -> Missed {
        let majority = self.majority();
        let absent = |(node, vote): (usize, &Vote)| match vote {
            Vote::Absent(why) => Some((node, why.clone())),
            _ => None,
        };
        let absent: Vec<_> = self.votes.iter().enumerate().filter_map(absent).collect();
        if self.votes.len() - absent.len() < majority {
            return Missed::Absent(absent);
        }
        // When each node is free; `None` where that is not known.
        let mut free_in = Vec::new();
        for vote in &self.votes {
            match vote {
                Vote::Refused { remaining, .. } => free_in.push(*remaining),
                Vote::Absent(_) | Vote::Open => free_in.push(None),
                _ => free_in.push(Some(Duration::ZERO)),
            }
        }
        free_in.sort_by_key(|free_in| free_in.unwrap_or(Duration::MAX));
        let contention = Contention { remaining: free_in[majority - 1] };
        if self.most_of_another() >= majority {
            Missed::Held(contention)
        } else {
            Missed::Split(contention)
        }
    }

    /// On how many nodes the one has the lock who has it on the most of those that refused.
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

/// How many nodes are more than half of them.
pub fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn granted(grant: u64) -> Heard {
        Heard::Granted(token(grant))
    }

    fn refused(holder: &str, seconds: u64) -> Heard {
        let remaining = Some(Duration::from_secs(seconds));
        Heard::Refused { holder: holder.to_owned(), remaining }
    }

    fn absent() -> Heard {
        Heard::Absent(Absence::NoAnswer("down".to_owned()))
    }

    /// The tally of this, one node after the other, in which nobody has anything to seal.
    fn tally(nodes: usize, heard: Vec<Heard>) -> Tally {
        let mut tally = Tally::of(nodes);
        for (node, heard) in heard.into_iter().enumerate() {
            assert_eq!(tally.count(node, heard), []);
        }
        tally
    }

    #[test]
    fn majority_that_counts_alike_wins_at_once() {
        assert_eq!(tally(5, vec![granted(34), granted(34)]).verdict(), Verdict::Open);
        let won = tally(5, vec![granted(34), granted(34), granted(34)]);
        assert_eq!(won.verdict(), Verdict::Won(token(34)));
    }

    #[test]
    fn token_counts_once_a_majority_has_sealed_it() {
        let mut tally = tally(3, vec![granted(34)]);
        let sealing = [Sealing { node: 0, grant: token(34), token: token(36) }];
        assert_eq!(tally.count(2, granted(36)), sealing);
        assert_eq!(tally.verdict(), Verdict::Open);
        let sealing = [Sealing { node: 1, grant: token(30), token: token(36) }];
        assert_eq!(tally.count(1, granted(30)), sealing, "one that comes later is sealed too");
        assert_eq!(tally.count(0, Heard::Sealed(false)), []);
        assert_eq!(tally.verdict(), Verdict::Open);
        assert_eq!(tally.count(1, Heard::Sealed(true)), []);
        assert_eq!(tally.verdict(), Verdict::Won(token(36)));
    }

    #[test]
    fn grant_above_the_token_does_not_count() {
        let mut tally = tally(5, vec![granted(34), granted(34)]);
        assert_eq!(tally.count(2, granted(33)).len(), 1);
        assert_eq!(tally.count(3, granted(40)), [], "its lock may follow one of token 39");
        assert_eq!(tally.count(2, Heard::Sealed(false)), []);
        assert_eq!(tally.verdict(), Verdict::Open);
        assert_eq!(tally.count(4, absent()), []);
        assert_eq!(tally.verdict(), Verdict::Missed);
        assert_eq!(tally.highest(), Some(token(34)));
    }

    #[test]
    fn who_has_the_lock_is_asked_of_those_who_may_tell() {
        let verdict = |heard| tally(3, heard).verdict();
        assert_eq!(verdict(vec![absent(), refused("a", 9)]), Verdict::Open, "a may have two");
        assert_eq!(verdict(vec![absent(), refused("a", 9), refused("a", 9)]), Verdict::Missed);
        assert_eq!(verdict(vec![refused("a", 9), refused("a", 9)]), Verdict::Missed);
        assert_eq!(verdict(vec![absent(), absent()]), Verdict::Missed, "nobody can have two");
    }

    #[test]
    fn lock_is_held_only_if_one_has_a_majority_of_it() {
        let missed = |heard| tally(3, heard).missed();
        let held = missed(vec![refused("a", 9), granted(34), refused("a", 5)]);
        assert!(
            matches!(held, Missed::Held(Contention { remaining: Some(left) }) if left.as_secs() == 5),
            "two nodes are free by then: {held:?}"
        );
        let split = missed(vec![refused("a", 9), granted(34), refused("b", 5)]);
        assert!(matches!(split, Missed::Split(_)), "{split:?}");
        let unseen = missed(vec![refused("a", 9), absent(), granted(34)]);
        assert!(
            matches!(unseen, Missed::Split(Contention { remaining: Some(left) }) if left.as_secs() == 9),
            "it may have the node that is down: {unseen:?}"
        );
        let down = missed(vec![absent(), granted(34), absent()]);
        assert!(matches!(down, Missed::Absent(absent) if absent.len() == 2));
    }
}
