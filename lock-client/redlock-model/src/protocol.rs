//! The rules of the protocol, and ways to break them.
//!
//! The first variant of each rule is the protocol as built. The others are for negative controls:
//! each removes a protection, and the tests show that the model finds the consequence. Only
//! [`ExpiryRule::Never`] breaks nothing by itself: it makes locks depend on releases.
//!
//! The machines themselves are never broken. A broken rule of theirs changes an event on its way to
//! a machine, or drops a command of the machine and reports its success.

use crate::{
    id::Token,
    redlock::machines::{
        update::Request,
        votes::{Event, Owned, OwnerReply},
    },
};

/// Which variant of each rule a model follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Which grants of a round count.
    pub grant: GrantRule,
    /// What a seal compares.
    pub seal: SealRule,
    /// How a lease takes a node again.
    pub join: JoinRule,
    /// What a reissue does.
    pub reissue: ReissueRule,
    /// Which token a renewal returns.
    pub renewal: RenewalRule,
    /// What the storage compares.
    pub fence: FenceRule,
    /// When locks expire.
    pub expiry: ExpiryRule,
    /// Which nodes a release goes to.
    pub release: ReleaseRule,
}

impl Protocol {
    /// The protocol as built.
    pub const AS_BUILT: Self = Self {
        grant: GrantRule::UpToTheToken,
        seal: SealRule::ComparesOwnership,
        join: JoinRule::Floor,
        reissue: ReissueRule::RaisesAndSeals,
        renewal: RenewalRule::CompletesReissue,
        fence: FenceRule::ComparesTokenAndHolder,
        expiry: ExpiryRule::AnyMoment,
        release: ReleaseRule::ToAllNodes,
    };

    /// The grant that a round receives. Its token is `token`, if it has one.
    pub(crate) fn told_grant(&self, grant: Token, token: Option<Token>) -> Token {
        match self.grant {
            GrantRule::UpToTheToken => grant,
            GrantRule::AboveTheToken => token.map_or(grant, |token| grant.min(token)),
        }
    }

    /// The event that a renewal or a reissue receives after its last request.
    pub(crate) fn told_event(&self, event: Event, request: Request) -> Event {
        let ignores_floor = match self.join {
            JoinRule::FloorIsIgnored => true,
            JoinRule::ReissueIgnoresFloor => request != Request::Renew,
            _ => false,
        };
        let told_floor = |floor: Option<Token>| match self.join {
            _ if ignores_floor => None,
            JoinRule::CountsOneAbove => floor.map(|floor| floor - 1),
            _ => floor,
        };
        match (event, request) {
            (Event::Answer(node, OwnerReply::Owned(owned)), _) => {
                let floor = told_floor(owned.floor);
                Event::Answer(node, OwnerReply::Owned(Owned { floor, ..owned }))
            }
            (
                Event::Answer(node, OwnerReply::Other { .. } | OwnerReply::NotOurs),
                Request::Seal { token },
            ) if self.reissue == ReissueRule::IgnoresRejectedSeal => {
                Event::Answer(node, OwnerReply::Owned(Owned { number: token, floor: None }))
            }
            _ => event,
        }
    }

    /// Whether the seals of a round are not sent, but taken for done.
    pub(crate) fn skips_seals(&self) -> bool {
        self.seal == SealRule::NoSeal
    }

    /// Whether the seals that follow this request are not sent, but taken for done.
    pub(crate) fn skips_seals_after(&self, request: Request) -> bool {
        match request {
            Request::Renew => self.renewal == RenewalRule::ReturnsTheHighest,
            Request::Raise { .. } => self.reissue == ReissueRule::RaisesOnly,
            Request::Seal { .. } => false,
        }
    }
}

/// Which grants of a round count, besides the M that fix the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRule {
    /// Those that equal the token, and lower ones once they are sealed.
    UpToTheToken,
    /// Those above the token, too.
    AboveTheToken,
}

/// What a seal compares before it changes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealRule {
    /// The ownership: the holder, and the grant or the token. The token must not be below the floor.
    ComparesOwnership,
    /// The holder only. Without the grant, the floor alone would still reject such a seal.
    ComparesHolderOnly,
    /// Nothing: it seals a node even if another holder has the lock there.
    ComparesNothing,
    /// There are no seals: M grants are enough, and the highest is the token.
    NoSeal,
}

/// How a lease takes a node again, and which nodes count for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRule {
    /// The lock records its floor. The node does not count for a token below the floor.
    Floor,
    /// The naive way: the node takes the lease's grant, and counts.
    SameGrant,
    /// The node takes a grant of its own, and counts. There is no floor.
    OwnGrant,
    /// The lock records its floor, but nothing counts by it.
    FloorIsIgnored,
    /// Renewals count by the floor, but reissues do not.
    ReissueIgnoresFloor,
    /// The node takes the lease's grant also if its counter is above the token by one.
    SameGrantOneAbove,
    /// A node counts also if its floor is above the token by one.
    CountsOneAbove,
}

impl JoinRule {
    /// Whether the lock records its floor.
    pub(crate) fn has_floor(self) -> bool {
        !matches!(self, Self::SameGrant | Self::OwnGrant)
    }
}

/// What a reissue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReissueRule {
    /// It raises M counters and seals M nodes. After a rejected write, the client claims and reads
    /// again before it writes.
    RaisesAndSeals,
    /// It raises M counters and seals no node.
    RaisesOnly,
    /// It raises M counters, and takes a rejected seal for an accepted one.
    IgnoresRejectedSeal,
    /// It raises and seals, but then sends a rejected write again with the new token.
    ResendsRejectedWrite,
}

/// Which token a renewal returns, if it finds tokens of different height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalRule {
    /// The lowest, or the highest after it has sealed that on M nodes.
    CompletesReissue,
    /// The highest, without a seal.
    ReturnsTheHighest,
}

/// What the storage compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceRule {
    /// The tokens, and the holders if the tokens are equal.
    ComparesTokenAndHolder,
    /// The tokens only.
    ComparesTokenOnly,
}

/// When locks expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryRule {
    /// At any moment, so that the model trusts no clock.
    AnyMoment,
    /// Never, so that only a release frees a lock.
    Never,
}

/// Which nodes a release goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseRule {
    /// All nodes.
    ToAllNodes,
    /// Only the nodes whose grant the client has received.
    ToKnownGranters,
}
