//! The rules of the protocol, and what becomes of events and commands if one is broken.
//!
//! The machines themselves are never broken. A script compares less, or an event is changed on its way to
//! a machine, or a command of the machine is dropped and its success reported.

use crate::{
    id::Token,
    redlock::machines::{
        update::Request,
        votes::{Event, Owned, OwnerReply},
    },
};

/// A rule that is left out. The tests show that the model finds the consequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Grants above the token count, too.
    HigherGrantCounts,
    /// A round sends no seals: M grants are enough, and the highest is the token.
    NoSeal,
    /// A seal compares the holder, but neither the grant nor the floor.
    SealComparesHolder,
    /// A seal changes a node even if another holder has the lock there.
    SealComparesNothing,
    /// A joined node takes the lease's grant, and counts. There is no floor.
    JoinUnderSameGrant,
    /// A joined node takes a grant of its own, and counts. There is no floor.
    JoinUnderOwnGrant,
    /// The lock records its floor, but nothing counts by it.
    FloorIsIgnored,
    /// Renewals count by the floor, but reissues do not.
    ReissueIgnoresFloor,
    /// A joined node takes the lease's grant also if its counter is above the token by one.
    SameGrantOneAbove,
    /// A node counts also if its floor is above the token by one.
    CountsOneAbove,
    /// A reissue raises M counters, and seals no node.
    ReissueSealsNoNode,
    /// A reissue takes a rejected seal for an accepted one.
    ReissueIgnoresRejectedSeal,
    /// A renewal that finds tokens of different height returns the highest without a seal.
    RenewalReturnsHighest,
    /// A release goes only to the nodes whose grant the client has received.
    ReleaseToKnownGranters,
}

impl Fault {
    /// The grant that a round receives. Its token is `token`, if it has one.
    pub(crate) fn received_grant(fault: Option<Self>, grant: Token, token: Option<Token>) -> Token {
        match token {
            Some(token) if fault == Some(Self::HigherGrantCounts) => grant.min(token),
            _ => grant,
        }
    }

    /// The event that a renewal or a reissue receives after its last request.
    pub(crate) fn received_event(fault: Option<Self>, event: Event, request: Request) -> Event {
        let (node, reply) = match event {
            Event::Answer(node, reply) => (node, reply),
            Event::Failed(_) => return event,
        };
        let received = match (fault, reply, request) {
            (Some(Self::FloorIsIgnored), OwnerReply::Owned(owned), _) => {
                OwnerReply::Owned(Owned { floor: None, ..owned })
            }
            (
                Some(Self::ReissueIgnoresFloor),
                OwnerReply::Owned(owned),
                Request::Raise { .. } | Request::Seal { .. },
            ) => OwnerReply::Owned(Owned { floor: None, ..owned }),
            (Some(Self::CountsOneAbove), OwnerReply::Owned(owned), _) => {
                let floor = owned.floor.map(|floor| floor - 1);
                OwnerReply::Owned(Owned { floor, ..owned })
            }
            (
                Some(Self::ReissueIgnoresRejectedSeal),
                OwnerReply::Other { .. } | OwnerReply::NotOurs,
                Request::Seal { token },
            ) => OwnerReply::Owned(Owned { number: token, floor: None }),
            _ => reply,
        };
        Event::Answer(node, received)
    }

    /// Whether the seals that follow this request are not sent, but taken for done.
    pub(crate) fn skips_seals_after(fault: Option<Self>, request: Request) -> bool {
        match request {
            Request::Renew => fault == Some(Self::RenewalReturnsHighest),
            Request::Raise { .. } => fault == Some(Self::ReissueSealsNoNode),
            Request::Seal { .. } => false,
        }
    }
}
