//! After a renewal: the nodes that the lease joins, and whether it makes joined nodes count.

use super::{
    Token,
    lease_tokens::LeaseTokens,
    votes::{OwnerReply, Vote, Votes},
};

/// What a lease learns of the nodes that did not count for its renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Regain {
    /// The nodes to join at first.
    pub(crate) free: Vec<usize>,
    /// The highest floor of the nodes that the lease has.
    highest_floor: Option<Token>,
}

/// What the client must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Join this node.
    Join { node: usize },
    /// Name this grant in later requests to this node.
    Learn { node: usize, grant: Token },
}

impl Regain {
    pub(super) fn new(votes: &Votes) -> Self {
        let mut regain = Self::default();
        for (node, vote) in votes.votes.iter().enumerate() {
            match vote {
                Vote::Free => regain.free.push(node),
                Vote::Uncounted(floor) => regain.hold(*floor),
                _ => {}
            }
        }
        regain
    }

    /// Counts an answer to the renewal that came after its majority.
    pub(crate) fn on(&mut self, node: usize, reply: OwnerReply) -> Option<Command> {
        match reply {
            OwnerReply::Owned(owned) => {
                self.hold(owned.floor);
                None
            }
            OwnerReply::Other { grant } => Some(Command::Learn { node, grant }),
            OwnerReply::NotOurs => Some(Command::Join { node }),
        }
    }

    /// Records the floor of a node that the lease has, or has joined.
    pub(crate) fn hold(&mut self, floor: Option<Token>) {
        self.highest_floor = self.highest_floor.max(floor);
    }

    /// The floor above which a reissue makes all nodes of the lease count; `None` if all do.
    pub(crate) fn reissue_above(&self, lease: &LeaseTokens) -> Option<Token> {
        self.highest_floor.filter(|floor| *floor > lease.height())
    }
}
