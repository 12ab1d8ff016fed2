//! The end of scenarios in which a client gives a lock back that is another client's by then.

use super::findings::{count, lease_over, most_holders_at_once};
use crate::record::{Actor, Event, EventKind, Expected, Outcome};

pub(crate) const TRACKS: [Actor; 4] =
    [Actor::Client1, Actor::Redis, Actor::Client2, Actor::Client3];

/// Client 1 has deleted client 2's lock, and client 3 acquired it beside client 2.
pub(crate) const ANOTHERS_LOCK_DELETED: [(&str, Expected); 2] = ending_with(1, 2);
/// Client 2 has kept its lock, and was alone.
pub(crate) const NO_LOCK_DELETED: [(&str, Expected); 2] = ending_with(0, 1);

const fn ending_with(deleted: u64, holders: u64) -> [(&'static str, Expected); 2] {
    [
        ("locks_of_others_deleted", Expected::Number(deleted)),
        ("holders_at_once", Expected::Number(holders)),
    ]
}

pub(crate) fn outcome(events: &[Event]) -> Outcome {
    let deleted = count(events, |event| matches!(event.kind, EventKind::LockDeleted { .. }));
    Outcome::default()
        .with("locks_of_others_deleted", deleted)
        .with("holders_at_once", most_holders_at_once(events, lease_over))
}
