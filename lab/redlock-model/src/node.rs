//! A node: one lock's keys on one Redis, and the scripts.
//!
//! Each method is a script of `lock-client/src/backend/redlock/`, and does in one step what that does.
//! Whether the node has a vote at all is [asked first](Node::admitted), as the scripts do.

use crate::{
    id::{Holder, NODES, NodeId, Nodes, Token},
    variant::Seal,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) counter: Token,
    pub(crate) lock: Option<Lock>,
    pub(crate) admission: Admission,
}

/// The lock's value: "<token> <grant> <holder>". Its ttl isn't here: it may end at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lock {
    pub(crate) token: Token,
    pub(crate) grant: Token,
    pub(crate) holder: Holder,
}

/// Whether the node has a vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Admission {
    #[default]
    Admitted,
    /// It restarted, and has no vote until it has copied the counters of enough others.
    Waiting { copied: Nodes },
}

impl Admission {
    /// The same, of nodes that were put in another order.
    pub(crate) fn reordered(self, order: &[NodeId; NODES]) -> Self {
        match self {
            Self::Admitted => self,
            Self::Waiting { copied } => Self::Waiting { copied: copied.reordered(order) },
        }
    }
}

impl Node {
    /// grant.lua: answers this node's grant, or refuses.
    pub(crate) fn grant(&mut self, holder: Holder) -> Option<Token> {
        match self.lock {
            None => {
                self.counter += 1;
                let grant = self.counter;
                self.lock = Some(Lock { token: grant, grant, holder });
                Some(grant)
            }
            Some(lock) if lock.holder == holder => Some(lock.grant),
            Some(_) => None,
        }
    }

    /// seal.lua: answers whether it sealed. The ownership is (holder, token) from then on.
    pub(crate) fn seal(&mut self, holder: Holder, grant: Token, token: Token, check: Seal) -> bool {
        let owned = match check {
            Seal::Ownership => self.owns(holder, grant) || self.owns(holder, token),
            Seal::HolderAlone => self.lock.is_some_and(|lock| lock.holder == holder),
            Seal::Unchecked | Seal::None => true,
        };
        if !owned {
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

    /// release.lua: frees the lock if it is the holder's, and lifts the counter in any case.
    pub(crate) fn release(&mut self, holder: Holder, token: Token) {
        if self.lock.is_some_and(|lock| lock.holder == holder) {
            self.lock = None;
        }
        self.counter = self.counter.max(token);
    }

    /// renew.lua: answers the token that is in the lock. That it sets the ttl changes nothing here.
    pub(crate) fn renew(&self, holder: Holder, grant: Token) -> Option<Token> {
        self.lock.filter(|lock| (lock.holder, lock.grant) == (holder, grant)).map(|lock| lock.token)
    }

    /// raise.lua, the first half of a reissue: answers the counter, which is above what was asked.
    pub(crate) fn raise(&mut self, holder: Holder, grant: Token, above: Token) -> Option<Token> {
        if !self.owns(holder, grant) {
            return None;
        }
        self.counter = self.counter.max(above) + 1;
        Some(self.counter)
    }

    /// The second half of a reissue: answers whether the node is sealed with the new token.
    pub(crate) fn reissue(&mut self, holder: Holder, grant: Token, token: Token) -> bool {
        if !self.owns(holder, grant) {
            return false;
        }
        self.counter = self.counter.max(token);
        self.lock = Some(Lock { token, grant, holder });
        true
    }

    /// Loses all that it had, and its vote.
    pub(crate) fn restart(&mut self) {
        *self = Self { admission: Admission::Waiting { copied: Nodes::NONE }, ..Self::default() };
    }

    /// Takes over what another node's counter is at least.
    pub(crate) fn copy(&mut self, counter: Token, from: NodeId) {
        if let Admission::Waiting { copied } = &mut self.admission {
            copied.insert(from);
            self.counter = self.counter.max(counter);
        }
    }

    pub(crate) fn admitted(&self) -> bool {
        self.admission == Admission::Admitted
    }

    pub(crate) fn owns(&self, holder: Holder, grant: Token) -> bool {
        self.lock.is_some_and(|lock| (lock.holder, lock.grant) == (holder, grant))
    }
}
