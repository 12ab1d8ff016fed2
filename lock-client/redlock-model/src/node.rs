//! A node: the keys of one lock on one Redis, and the scripts that change them.
//!
//! Each method is one of the scripts of `lock-client`'s Redlock, and has the same effect in one
//! step. A test there (`tests/redlock/scripts`) compares each method with its script, for all small
//! states and arguments. The scripts first check whether the node may vote. In [`takeover`](crate::takeover),
//! the client checks that before it calls a method.

use crate::{
    fault::Fault,
    id::{Holder, Token},
};

/// The keys of one lock on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// The counter; 0 if nothing was granted yet.
    pub counter: Token,
    /// The lock; `None` if it is free.
    pub lock: Option<Lock>,
}

/// The parts of the lock's value. It has no ttl here: it may expire at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lock {
    /// The last token sealed here.
    pub token: Token,
    /// The counter when the lock was granted, or the token that replaced it.
    pub grant: Token,
    /// The counter before this ownership took the node.
    pub floor: Token,
    /// The owner.
    pub holder: Holder,
}

/// What a script answers to the owner: a number, and the floor of the ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The grant of a grant and a join, the token of a renewal and a seal, the counter of a raise.
    pub number: Token,
    /// The floor.
    pub floor: Token,
}

impl Node {
    /// A node with this counter and lock.
    pub fn new(counter: Token, lock: Option<Lock>) -> Self {
        Self { counter, lock }
    }

    /// grant.lua: returns this node's grant, or rejects.
    pub fn grant(&mut self, holder: Holder) -> Option<Owned> {
        match self.lock {
            None => {
                let grant = self.counter + 1;
                Some(self.take(holder, grant, grant, grant))
            }
            // The request was delivered twice.
            Some(lock) if lock.holder == holder => Some(lock.granted()),
            Some(_) => None,
        }
    }

    /// join.lua: takes a free node for a lease that has a grant and a token.
    pub fn join(
        &mut self,
        holder: Holder,
        grant: Token,
        token: Token,
        fault: Option<Fault>,
    ) -> Option<Owned> {
        match self.lock {
            None => {
                let own_grant = self.counter + 1;
                let one_above = fault == Some(Fault::SameGrantOneAbove);
                let has_no_floor =
                    matches!(fault, Some(Fault::JoinUnderSameGrant | Fault::JoinUnderOwnGrant));
                let (granted, counter) = match fault {
                    Some(Fault::JoinUnderSameGrant) => (grant, self.counter.max(token)),
                    Some(Fault::JoinUnderOwnGrant) => (own_grant, own_grant.max(token)),
                    _ if self.counter > token + Token::from(one_above) => (own_grant, own_grant),
                    _ => (grant, token),
                };
                self.take(holder, granted, token, counter);
                let lock = self.lock.as_mut()?;
                if has_no_floor {
                    lock.floor = 0;
                }
                Some(lock.granted())
            }
            Some(lock) if lock.holder == holder => Some(lock.granted()),
            Some(_) => None,
        }
    }

    /// Takes a free node, and sets its counter.
    fn take(&mut self, holder: Holder, grant: Token, token: Token, counter: Token) -> Owned {
        let lock = Lock { token, grant, floor: self.counter, holder };
        self.counter = counter;
        self.lock = Some(lock);
        lock.granted()
    }

    /// seal.lua: seals a token, unless the floor is higher. `here` is the grant on this node, and
    /// `common` replaces it. They differ only in a round.
    pub fn seal(
        &mut self,
        holder: Holder,
        [here, common]: [Token; 2],
        token: Token,
        fault: Option<Fault>,
    ) -> Option<Owned> {
        let lock = self.lock.filter(|lock| lock.holder == holder);
        let matches = match fault {
            Some(Fault::SealComparesNothing) => true,
            Some(Fault::SealComparesHolder) => lock.is_some(),
            _ => lock.is_some_and(|own| [here, common].contains(&own.grant) && token >= own.floor),
        };
        if !matches {
            return None;
        }
        self.counter = self.counter.max(token);
        if let Some(lock) = lock {
            self.lock = Some(Lock { token: lock.token.max(token), grant: common, ..lock });
        }
        Some(Owned { number: token, floor: lock.map_or(0, |lock| lock.floor) })
    }

    /// release.lua: frees the lock if it is the holder's, and raises the counter in any case.
    /// Returns whether the holder had the lock.
    pub fn release(&mut self, holder: Holder, token: Token) -> bool {
        self.counter = self.counter.max(token);
        self.lock.take_if(|lock| lock.holder == holder).is_some()
    }

    /// renew.lua: returns the lock's token. Its new ttl changes nothing here.
    pub fn renew(&self, holder: Holder, grant: Token) -> Option<Owned> {
        let lock = self.owned(holder, grant)?;
        Some(Owned { number: lock.token, floor: lock.floor })
    }

    /// raise.lua, the first half of a reissue: returns the counter, which is now above `above`.
    pub fn raise(&mut self, holder: Holder, grant: Token, above: Token) -> Option<Owned> {
        let lock = self.owned(holder, grant)?;
        self.counter = self.counter.max(lock.token).max(above) + 1;
        Some(Owned { number: self.counter, floor: lock.floor })
    }

    /// Whether the lock belongs to this ownership.
    pub(crate) fn is_owned_by(&self, holder: Holder, grant: Token) -> bool {
        self.owned(holder, grant).is_some()
    }

    fn owned(&self, holder: Holder, grant: Token) -> Option<Lock> {
        self.lock.filter(|lock| (lock.holder, lock.grant) == (holder, grant))
    }
}

impl Lock {
    fn granted(&self) -> Owned {
        Owned { number: self.grant, floor: self.floor }
    }
}
