//! The end of scenarios in which a lock service loses something, and may issue a token twice.

use super::{
    findings::{count, tokens_issued_twice, updates_lost},
    stale_writes::VALUE_2,
    storage::Stored,
};
use crate::record::{Actor, Event, EventKind, Expected, Outcome, Reason};

/// A token was issued twice and nobody noticed: client 2 has overwritten what it had not read.
pub(crate) const OVERWRITTEN: [(&str, Expected); 6] = ending_with(2, [1, 0, 0, 1]);
/// A token was issued twice: client 2 had its token reissued, and client 1 lost its lease.
pub(crate) const REISSUED: [(&str, Expected); 6] = ending_with(1, [1, 1, 1, 0]);
/// No token was issued twice: client 1 lost its lease.
pub(crate) const KEPT_GROWING: [(&str, Expected); 6] = ending_with(1, [0, 0, 1, 0]);

/// The end in which the storage has accepted this many writes (`version`).
const fn ending_with(
    version: u64,
    [twice, conflicts, leases_lost, updates_lost]: [u64; 4],
) -> [(&'static str, Expected); 6] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("version", Expected::Number(version)),
        ("tokens_given_twice", Expected::Number(twice)),
        ("holder_conflicts", Expected::Number(conflicts)),
        ("leases_lost", Expected::Number(leases_lost)),
        ("updates_lost", Expected::Number(updates_lost)),
    ]
}

/// The outcome of a world whose storage has this in the end.
pub(crate) fn outcome(events: &[Event], stored: Stored) -> Outcome {
    let conflicts = count(events, |event| match event.kind {
        EventKind::Rejected(rejection) => {
            event.actor == Actor::Storage && rejection.reason == Reason::HolderConflict
        }
        _ => false,
    });
    Outcome::default()
        .with("value", stored.value)
        .with("token", stored.token)
        .with("version", stored.version)
        .with("tokens_given_twice", tokens_issued_twice(events))
        .with("holder_conflicts", conflicts)
        .with("leases_lost", count(events, |event| event.kind == EventKind::Lost))
        .with("updates_lost", updates_lost(events))
}
