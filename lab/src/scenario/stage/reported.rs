//! What the report of a client means, beside what happened before.

use fence::Token;

use super::findings::{Ends, highest_accepted, holders, is_anothers, titles, unseen_by};
use crate::record::{Actor, Event, EventKind};

/// The storage's decision that a client's report shows, if the report is about the storage.
pub(super) fn decision(
    reported: &EventKind,
    client: Actor,
    token: Option<Token>,
    before: &[Event],
) -> Option<EventKind> {
    let content = match reported {
        EventKind::Read(content) if content.claimed == Some(false) => {
            return Some(EventKind::Answered(content.clone()));
        }
        EventKind::Rejected(rejection) | EventKind::ClaimRejected(rejection) => {
            return Some(EventKind::Rejected(*rejection));
        }
        EventKind::Read(content) | EventKind::Written { content, .. } => content.clone(),
        _ => return None,
    };
    let is_write = matches!(reported, EventKind::Written { .. });
    Some(if is_write && highest_accepted(before) > token {
        EventKind::AcceptedStaleWrite(content)
    } else if is_anothers(token, client, before) {
        EventKind::AcceptedAnothersToken(content)
    } else if is_write {
        EventKind::AcceptedWrite(content)
    } else {
        EventKind::AcceptedClaim(content)
    })
}

/// A decision that an old primary has made, while another one is the primary.
pub(super) fn by_old_primary(decision: EventKind) -> EventKind {
    match decision {
        EventKind::AcceptedClaim(content)
        | EventKind::AcceptedWrite(content)
        | EventKind::AcceptedStaleWrite(content)
        | EventKind::AcceptedAnothersToken(content) => EventKind::AcceptedByOldPrimary(content),
        other => other,
    }
}

/// A client's report, completed by what the client can't know: who holds the lock beside it, and
/// what it has overwritten without having read it.
pub(super) fn completed(
    reported: EventKind,
    client: Actor,
    before: &[Event],
    ends: Ends,
) -> EventKind {
    match reported {
        EventKind::Acquired { ttl_ms, remaining_ms, resource, holder, .. } => {
            let beside = titles(&holders(before, ends));
            EventKind::Acquired { ttl_ms, remaining_ms, resource, holder, beside }
        }
        EventKind::Written { content, .. } => {
            EventKind::Written { content, overwrites_unseen: unseen_by(client, before) }
        }
        other => other,
    }
}
