//! A node: the keys of one lock on one Redis, and the scripts that change them.
//!
//! Each method is one of the scripts of `lock-client`'s Redlock, and has the same effect in one
//! step. The scripts first check whether the node may vote. Here `network::has_vote` checks that
//! before the method is called.

use crate::{
    id::{Holder, NODES, NodeId, NodeSet, Token},
    protocol::SealRule,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) counter: Token,
    pub(crate) lock: Option<Lock>,
    pub(crate) vote: Vote,
}

/// The lock's value, `<token> <grant> <holder>`. It has no ttl here: it may expire at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lock {
    pub(crate) token: Token,
    pub(crate) grant: Token,
    pub(crate) holder: Holder,
}

/// Whether the node may vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Vote {
    #[default]
    Admitted,
    /// The node has restarted. It must copy the counters of M other nodes before it is admitted.
    Withheld { copied_from: NodeSet },
}

impl Vote {
    /// The same vote after the nodes were renumbered. `order[new]` is a node's old number.
    pub(crate) fn renumbered(self, order: &[NodeId; NODES]) -> Self {
        match self {
            Self::Admitted => self,
            Self::Withheld { copied_from } => {
                Self::Withheld { copied_from: copied_from.renumbered(order) }
            }
        }
    }
}

impl Node {
    /// grant.lua: returns this node's grant, or refuses.
    pub(crate) fn grant(&mut self, holder: Holder) -> Option<Token> {
        match self.lock {
            None => {
                self.counter += 1;
                let grant = self.counter;
                self.lock = Some(Lock { token: grant, grant, holder });
                Some(grant)
            }
            // The request was delivered twice.
            Some(lock) if lock.holder == holder => Some(lock.grant),
            Some(_) => None,
        }
    }

    /// seal.lua: returns whether it sealed. From then on the ownership is (holder, token).
    pub(crate) fn seal(
        &mut self,
        holder: Holder,
        grant: Token,
        token: Token,
        rule: SealRule,
    ) -> bool {
        let matches = match rule {
            SealRule::ComparesOwnership => {
                self.is_owned_by(holder, grant) || self.is_owned_by(holder, token)
            }
            SealRule::ComparesHolderOnly => self.lock.is_some_and(|lock| lock.holder == holder),
            SealRule::ComparesNothing | SealRule::NoSeal => true,
        };
        if !matches {
            return false;
        }
        self.counter = self.counter.max(token);
        if let Some(lock) = &mut self.lock
            && lock.holder == holder
        {
            *lock = Lock { token, grant: token, holder };
        }
        true
    }

    /// release.lua: frees the lock if it is the holder's, and raises the counter in any case.
    pub(crate) fn release(&mut self, holder: Holder, token: Token) {
        if self.lock.is_some_and(|lock| lock.holder == holder) {
            self.lock = None;
        }
        self.counter = self.counter.max(token);
    }

    /// renew.lua: returns the lock's token. Its new ttl changes nothing here.
    pub(crate) fn renew(&self, holder: Holder, grant: Token) -> Option<Token> {
        self.lock.filter(|lock| (lock.holder, lock.grant) == (holder, grant)).map(|lock| lock.token)
    }

    /// raise.lua, the first half of a reissue: returns the counter, which is now above `above`.
    pub(crate) fn raise(&mut self, holder: Holder, grant: Token, above: Token) -> Option<Token> {
        if !self.is_owned_by(holder, grant) {
            return None;
        }
        self.counter = self.counter.max(above) + 1;
        Some(self.counter)
    }

    /// seal.lua with a reissued token, the second half of a reissue: returns whether it sealed.
    pub(crate) fn seal_reissued(&mut self, holder: Holder, grant: Token, token: Token) -> bool {
        if !self.is_owned_by(holder, grant) {
            return false;
        }
        self.counter = self.counter.max(token);
        self.lock = Some(Lock { token, grant, holder });
        true
    }

    /// Loses the lock, the counter and the vote.
    pub(crate) fn restart(&mut self) {
        *self = Self { vote: Vote::Withheld { copied_from: NodeSet::EMPTY }, ..Self::default() };
    }

    /// Raises the counter to at least that of another node. A node that may vote ignores this.
    pub(crate) fn copy_counter(&mut self, counter: Token, from: NodeId) {
        if let Vote::Withheld { copied_from } = &mut self.vote {
            copied_from.insert(from);
            self.counter = self.counter.max(counter);
        }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.vote == Vote::Admitted
    }

    /// Whether the lock belongs to this ownership.
    pub(crate) fn is_owned_by(&self, holder: Holder, grant: Token) -> bool {
        self.lock.is_some_and(|lock| (lock.holder, lock.grant) == (holder, grant))
    }
}
