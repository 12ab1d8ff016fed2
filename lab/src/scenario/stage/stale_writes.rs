//! The end of scenarios in which one client overtakes another: a stale write is accepted, or not.

use super::findings::{count, updates_lost};
use crate::record::{Actor, Checks, Danger, Event, EventKind, Expected, Fact, Outcome, World};

/// What the clients write, and the value in the end.
pub(crate) const VALUE_1: &str = "by client 1";
pub(crate) const VALUE_2: &str = "by client 2";

/// A storage that checks nothing, where client 1's late write is the last one, and a storage that
/// checks tokens.
pub(crate) const WITHOUT_AND_WITH_THE_FENCE: [World; 2] = [
    World {
        name: "unfenced",
        title: "WITHOUT the fence: the storage accepts every write",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &ending_with(VALUE_1, 33, [1, 0, 1]),
    },
    World {
        name: "fenced",
        title: "WITH the fence: the storage checks the token of each write",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &ending_with(VALUE_2, 34, [0, 1, 0]),
    },
];

/// The end with this value, written with this token. The counts are those of stale writes accepted,
/// stale writes rejected, and updates lost.
pub(crate) const fn ending_with(
    value: &'static str,
    token: u64,
    [accepted, rejected, lost]: [u64; 3],
) -> [(&'static str, Expected); 5] {
    [
        ("value", Expected::Text(value)),
        ("token", Expected::Number(token)),
        ("stale_writes_accepted", Expected::Number(accepted)),
        ("stale_writes_rejected", Expected::Number(rejected)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

/// The same, with a token that the lock service chooses.
pub(crate) const fn ending_with_any_token(
    value: &'static str,
    counts: [u64; 3],
) -> [(&'static str, Expected); 4] {
    let [value, _, accepted, rejected, lost] = ending_with(value, 0, counts);
    [value, accepted, rejected, lost]
}

/// The outcome of a world whose storage has this value in the end, written with this token.
pub(crate) fn outcome(events: &[Event], value: impl Into<Fact>, token: impl Into<Fact>) -> Outcome {
    let accepted = count(events, |event| matches!(event.kind, EventKind::AcceptedStaleWrite(_)));
    let rejected = count(events, |event| {
        event.actor == Actor::Storage && matches!(event.kind, EventKind::Rejected(_))
    });
    Outcome::default()
        .with("value", value)
        .with("token", token)
        .with("stale_writes_accepted", accepted)
        .with("stale_writes_rejected", rejected)
        .with("updates_lost", updates_lost(events))
}
