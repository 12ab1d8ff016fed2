//! What the events of a world show.

use std::collections::HashMap;

use fence::Token;

use crate::record::{Actor, Event, EventKind};

/// Which events end a client's hold of the lock.
pub(crate) type Ends = fn(&EventKind) -> bool;

/// The lease is over, or the client is dead.
pub(crate) fn lease_over(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Released
            | EventKind::Deleted { .. }
            | EventKind::LeaseLost
            | EventKind::LeaseOver
            | EventKind::Lost
            | EventKind::LeaseExpired { .. }
            | EventKind::Unanswered
            | EventKind::Killed
    )
}

/// The clients that hold the lock after these events.
pub(crate) fn holders(events: &[Event], ends: Ends) -> Vec<Actor> {
    let mut holders = Vec::new();
    events.iter().for_each(|event| change_holders(&mut holders, event, ends));
    holders
}

/// What an event changes of the clients that hold the lock.
fn change_holders(holders: &mut Vec<Actor>, Event { actor, kind, .. }: &Event, ends: Ends) {
    let client = match kind {
        EventKind::LeaseExpired { whose } => whose,
        _ => actor,
    };
    if let EventKind::Acquired { .. } = kind {
        holders.push(*client);
    } else if ends(kind) {
        holders.retain(|holder| holder != client);
    }
}

/// The titles of clients: `client 1 and client 2`.
pub(crate) fn titles(clients: &[Actor]) -> Option<String> {
    let titles: Vec<_> = clients.iter().map(|client| client.title()).collect();
    (!titles.is_empty()).then(|| titles.join(" and "))
}

/// The largest number of clients that held the lock at once.
pub(crate) fn most_holders_at_once(events: &[Event], ends: Ends) -> u64 {
    let mut holders = Vec::new();
    let at_once = events.iter().map(|event| {
        change_holders(&mut holders, event, ends);
        holders.len()
    });
    at_once.max().unwrap_or(0).try_into().expect("there are few clients")
}

/// The highest token that the storage has accepted.
pub(super) fn highest_accepted(events: &[Event]) -> Option<Token> {
    let accepted = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::AcceptedClaim(_)
                | EventKind::AcceptedWrite(_)
                | EventKind::AcceptedStaleWrite(_)
                | EventKind::AcceptedAnothersToken(_)
        )
    };
    events.iter().filter(|event| accepted(&event.kind)).filter_map(|event| event.token).max()
}

/// Whether another client has acquired the lock with this token.
pub(super) fn is_anothers(token: Option<Token>, client: Actor, events: &[Event]) -> bool {
    let acquired =
        |event: &&Event| matches!(event.kind, EventKind::Acquired { .. }) && event.actor != client;
    token.is_some() && events.iter().filter(acquired).any(|event| event.token == token)
}

/// The number of writes of others since this client last read or wrote; 0 if it never did.
pub(super) fn unseen_by(client: Actor, events: &[Event]) -> u64 {
    let mut unseen = None;
    for event in events {
        match event.kind {
            EventKind::Read(_) | EventKind::Written { .. } if event.actor == client => {
                unseen = Some(0);
            }
            EventKind::Written { .. } => unseen = unseen.map(|count| count + 1),
            _ => {}
        }
    }
    unseen.unwrap_or(0)
}

/// The number of writes that were overwritten by a client that had read before them.
pub(crate) fn updates_lost(events: &[Event]) -> u64 {
    let lost = |event: &Event| match event.kind {
        EventKind::Written { overwrites_unseen, .. } => overwrites_unseen,
        _ => 0,
    };
    events.iter().map(lost).sum()
}

/// The number of tokens that more than one client has acquired.
pub(crate) fn tokens_issued_twice(events: &[Event]) -> u64 {
    let mut issued: HashMap<_, u32> = HashMap::new();
    for event in events {
        if let (EventKind::Acquired { .. }, Some(token)) = (&event.kind, event.token) {
            *issued.entry(token).or_default() += 1;
        }
    }
    let twice = issued.values().filter(|count| **count > 1).count();
    twice.try_into().expect("there are few clients")
}

/// The number of events of a kind.
pub(crate) fn count(events: &[Event], of_kind: impl Fn(&Event) -> bool) -> u64 {
    events.iter().filter(|event| of_kind(event)).count().try_into().expect("there are few events")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;

    #[test]
    fn most_holders_at_once_are_those_after_the_event_with_most() {
        let recorder = Recorder::start(|_| {});
        let acquired = || EventKind::Acquired {
            ttl_ms: None,
            remaining_ms: None,
            resource: None,
            holder: None,
            beside: None,
        };
        assert_eq!(most_holders_at_once(&recorder.events(), lease_over), 0);
        let (one, two) = (Actor::Client1, Actor::Client2);
        for (actor, kind, most) in [
            (one, acquired(), 1),
            (one, EventKind::Released, 1),
            (two, acquired(), 1),
            (one, acquired(), 2),
            (Actor::Redis, EventKind::LeaseExpired { whose: two }, 2),
            (Actor::Client3, acquired(), 2),
            (two, acquired(), 3),
            (one, EventKind::Killed, 3),
        ] {
            recorder.record(actor, None, kind);
            let events = recorder.events();
            assert_eq!(most_holders_at_once(&events, lease_over), most, "{events:?}");
        }
        assert_eq!(holders(&recorder.events(), lease_over), [Actor::Client3, two]);
    }
}
