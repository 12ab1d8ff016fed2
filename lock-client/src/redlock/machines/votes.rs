//! The votes of all nodes on whether the lock still belongs to a lease.
//!
//! A node counts for a lease only if its *floor*, its counter before this ownership took it, is not
//! above the token that the lease had when the step began. On a node with a higher floor, another
//! client may have had a higher token in the meantime.

use super::{PerNode, Token, majority};

/// The reply of a script that compares the ownership, and of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerReply {
    /// The lock belongs to this ownership, and the script has done its work.
    Owned(Owned),
    /// The holder has the lock, but under another grant, or with too high a floor for a seal.
    Other {
        /// The grant on this node.
        grant: Token,
    },
    /// The holder does not have the lock.
    NotOurs,
}

/// The reply to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    /// The sealed token of a renewal and a seal, the counter of a raise, the grant of a join.
    pub(crate) number: Token,
    /// The node's counter before this ownership; `None` if it had none.
    pub(crate) floor: Option<Token>,
}

/// What has happened to a request to all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A node has answered.
    Answer(usize, OwnerReply),
    /// A node has failed, or did not answer in time.
    Failed(usize),
}

/// Which nodes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Counting {
    /// Those with a floor up to this token.
    FloorUpTo(Token),
    /// All on which the lock belongs to the lease. A raise always counts towards the height.
    All,
}

/// The votes of the nodes on one ownership.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Votes {
    counting: Counting,
    pub(crate) votes: PerNode<Vote>,
    /// Whether the nodes were asked again, under the grants from their first answers.
    asked_again: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Vote {
    #[default]
    Open,
    /// The node counts, with this number.
    Counts(Token),
    /// The lock belongs to the lease, but with this floor the node does not count.
    Uncounted(Option<Token>),
    /// The node has the lock under another grant than the client knew. It knows now.
    Learned,
    /// The lock does not belong to the lease.
    Free,
    Failed,
}

/// The result of the votes counted so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It depends on answers that have not arrived.
    Open,
    /// A majority counts.
    Majority,
    /// The client has learned grants, and asks once more with them. It has adopted the lease.
    AskAgain,
    /// The lock belongs to the lease on no majority that counts.
    Lost,
    /// Too few nodes have answered.
    Unknown,
}

impl Counting {
    fn counts(self, floor: Option<Token>) -> bool {
        match self {
            Self::FloorUpTo(token) => floor <= Some(token),
            Self::All => true,
        }
    }
}

impl Votes {
    pub(crate) fn new(nodes: usize, counting: Counting) -> Self {
        let votes = (0..nodes).map(|_| Vote::Open).collect();
        Self { counting, votes, asked_again: false }
    }

    /// Counts an event. The verdict is final, unless it is open or asks again.
    pub(crate) fn on(&mut self, event: Event) -> Verdict {
        let (node, vote) = match event {
            Event::Answer(node, OwnerReply::Owned(Owned { number, floor })) => {
                let counts = self.counting.counts(floor);
                (node, if counts { Vote::Counts(number) } else { Vote::Uncounted(floor) })
            }
            Event::Answer(node, OwnerReply::Other { .. }) => (node, Vote::Learned),
            Event::Answer(node, OwnerReply::NotOurs) => (node, Vote::Free),
            Event::Failed(node) => (node, Vote::Failed),
        };
        assert_eq!(self.votes[node], Vote::Open, "a node answers once");
        self.votes[node] = vote;
        let verdict = self.verdict();
        if verdict == Verdict::AskAgain {
            *self = Self { asked_again: true, ..Self::new(self.votes.len(), self.counting) };
        }
        verdict
    }

    fn verdict(&self) -> Verdict {
        let count =
            |counts: fn(&Vote) -> bool| self.votes.iter().filter(|vote| counts(vote)).count();
        let majority = majority(self.votes.len());
        // With so many nodes against the lease, the others are no majority.
        let is_lost = |against| against > self.votes.len() - majority;
        let against = count(|vote| matches!(vote, Vote::Uncounted(_) | Vote::Free));
        let learned = count(|vote| matches!(vote, Vote::Learned));
        if self.numbers().count() >= majority {
            Verdict::Majority
        } else if !is_lost(against) && count(|vote| matches!(vote, Vote::Open)) > 0 {
            Verdict::Open
        } else if learned > 0 && !self.asked_again {
            Verdict::AskAgain
        } else if is_lost(against + learned) {
            Verdict::Lost
        } else {
            Verdict::Unknown
        }
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.votes.len()
    }

    /// The numbers of the nodes that count.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = Token> {
        self.votes.iter().filter_map(|vote| match vote {
            Vote::Counts(number) => Some(*number),
            _ => None,
        })
    }
}
