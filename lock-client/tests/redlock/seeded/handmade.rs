//! Histories made by hand. The check finds exactly the violations that they contain.

use std::time::Duration;

use super::history::{Append, History, Issued, Span, Violation};
use crate::names::token;

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn issued(holder: &str, number: u64, requested: u64, received: u64) -> Issued {
    let holder = holder.parse().unwrap();
    let (requested, received) = (millis(requested), millis(received));
    Issued { holder, token: token(number), requested, received }
}

fn span(holder: &str, [from, until, over]: [u64; 3]) -> Span {
    let holder = holder.parse().unwrap();
    Span { holder, from: millis(from), until: millis(until), over: millis(over) }
}

fn append(sent: u64, acknowledged: impl Into<Option<u64>>) -> Append {
    Append { sent: millis(sent), acknowledged: acknowledged.into().map(millis) }
}

/// A history without violations.
fn sound() -> History {
    History {
        issued: vec![
            issued("a", 33, 0, 10),
            // Reissued, and renewed.
            issued("a", 34, 20, 30),
            issued("a", 34, 40, 50),
            issued("b", 36, 45, 110),
            // It was requested before the other was received, and so it may have any token.
            issued("c", 35, 100, 120),
        ],
        spans: vec![
            span("a", [10, 40, 100]),
            span("a", [50, 100, 140]),
            span("b", [110, 115, 200]),
            span("c", [120, 120, 200]),
        ],
        // The third was rejected, and nobody waited for the answer to the fourth.
        appends: vec![append(10, 20), append(30, 40), append(50, None), append(60, None)],
        value: vec![0, 1, 3],
    }
}

/// Adds a violation to the sound history.
fn with(violation: impl FnOnce(&mut History)) -> History {
    let mut history = sound();
    violation(&mut history);
    history
}

#[test]
fn sound_history_has_no_violations() {
    assert_eq!(sound().violations(), []);
    assert_eq!(sound().held_together(), []);
}

#[test]
fn token_that_two_holders_share_is_found() {
    let twice = with(|history| history.issued[4] = issued("c", 36, 100, 120));
    let [b, c] = [issued("b", 36, 45, 110), issued("c", 36, 100, 120)];
    assert_eq!(twice.violations(), [Violation::SharedToken(b, c)]);
}

#[test]
fn tokens_out_of_order_are_found_in_any_order_of_entries() {
    let [early, late] = [issued("a", 34, 40, 50), issued("c", 33, 60, 70)];
    for order in [[&early, &late], [&late, &early]] {
        let history = History { issued: order.map(Issued::clone).to_vec(), ..sound() };
        assert_eq!(history.violations(), [Violation::OutOfOrder(early.clone(), late.clone())]);
    }
    let falling = with(|history| history.issued[2] = issued("a", 32, 40, 50));
    let found = falling.violations();
    assert!(
        found.contains(&Violation::OutOfOrder(issued("a", 34, 20, 30), issued("a", 32, 40, 50)))
    );
}

#[test]
fn lease_that_holds_too_long_is_found() {
    let long = with(|history| history.spans[1].until = millis(141));
    assert_eq!(long.violations(), [Violation::HeldTooLong(span("a", [50, 141, 140]))]);
}

#[test]
fn leases_that_hold_at_the_same_time_are_found() {
    let both = with(|history| history.spans[1].until = millis(112));
    let [a, b] = [span("a", [50, 112, 140]), span("b", [110, 115, 200])];
    assert_eq!(both.held_together(), [Violation::HeldTogether(a, b)]);
    assert_eq!(both.violations(), [], "a clock that jumps may cause it");
}

#[test]
fn lost_swapped_and_repeated_appends_are_found() {
    let found = |value: &[usize]| with(|history| history.value = value.to_vec()).violations();
    assert_eq!(found(&[1]), [Violation::Lost(0)]);
    assert_eq!(found(&[1, 0]), [Violation::Swapped(0, 1)]);
    assert_eq!(found(&[0, 1, 1]), [Violation::Repeated(1)]);
    assert_eq!(found(&[3, 0, 1]), [Violation::Swapped(0, 3), Violation::Swapped(1, 3)]);
}
