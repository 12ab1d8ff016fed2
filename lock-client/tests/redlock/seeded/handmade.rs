//! Histories made by hand, in which the check finds what is wrong, and nothing else.

use std::time::Duration;

use super::history::{Append, History, Span, Told, Violation};
use crate::names::token;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn told(holder: &str, number: u64, asked: u64, told: u64) -> Told {
    let holder = holder.parse().unwrap();
    Told { holder, token: token(number), asked: at(asked), at: at(told) }
}

fn span(holder: &str, [from, until, over]: [u64; 3]) -> Span {
    let holder = holder.parse().unwrap();
    Span { holder, from: at(from), until: at(until), over: at(over) }
}

fn append(sent: u64, acknowledged: impl Into<Option<u64>>) -> Append {
    Append { sent: at(sent), acknowledged: acknowledged.into().map(at) }
}

/// Two clients, one after the other.
fn fine() -> History {
    History {
        told: vec![
            told("a", 33, 0, 10),
            // Reissued, and renewed.
            told("a", 34, 20, 30),
            told("a", 34, 40, 50),
            told("b", 36, 45, 110),
            // Begun before the other was told, it may have any token.
            told("c", 35, 100, 120),
        ],
        spans: vec![
            span("a", [10, 40, 100]),
            span("a", [50, 100, 140]),
            span("b", [110, 115, 200]),
            span("c", [120, 120, 200]),
        ],
        // The third was refused, and nobody heard of the fourth.
        appends: vec![append(10, 20), append(30, 40), append(50, None), append(60, None)],
        value: vec![0, 1, 3],
    }
}

/// Has one thing go wrong.
fn with(wrong: impl FnOnce(&mut History)) -> History {
    let mut history = fine();
    wrong(&mut history);
    history
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(fine().violations(), []);
    assert_eq!(fine().held_at_once(), []);
}

#[test]
fn token_of_two_holders_is_found() {
    let twice = with(|history| history.told[4] = told("c", 36, 100, 120));
    let [b, c] = [told("b", 36, 45, 110), told("c", 36, 100, 120)];
    assert_eq!(twice.violations(), [Violation::TokenOfTwo(b, c)]);
}

#[test]
fn tokens_out_of_order_are_found_whoever_tells_of_them_first() {
    let [early, late] = [told("a", 34, 40, 50), told("c", 33, 60, 70)];
    for order in [[&early, &late], [&late, &early]] {
        let history = History { told: order.map(Told::clone).to_vec(), ..fine() };
        assert_eq!(history.violations(), [Violation::OutOfOrder(early.clone(), late.clone())]);
    }
    let falling = with(|history| history.told[2] = told("a", 32, 40, 50));
    let found = falling.violations();
    assert!(found.contains(&Violation::OutOfOrder(told("a", 34, 20, 30), told("a", 32, 40, 50))));
}

#[test]
fn lease_that_holds_too_long_is_found() {
    let long = with(|history| history.spans[1].until = at(141));
    assert_eq!(long.violations(), [Violation::HeldTooLong(span("a", [50, 141, 140]))]);
}

#[test]
fn leases_that_hold_at_once_are_found() {
    let both = with(|history| history.spans[1].until = at(112));
    let [a, b] = [span("a", [50, 112, 140]), span("b", [110, 115, 200])];
    assert_eq!(both.held_at_once(), [Violation::BothHeld(a, b)]);
    assert_eq!(both.violations(), [], "which a clock that jumps may bring about");
}

#[test]
fn lost_swapped_and_repeated_appends_are_found() {
    let found = |value: &[usize]| with(|history| history.value = value.to_vec()).violations();
    assert_eq!(found(&[1]), [Violation::Lost(0)]);
    assert_eq!(found(&[1, 0]), [Violation::Swapped(0, 1)]);
    assert_eq!(found(&[0, 1, 1]), [Violation::Repeated(1)]);
    assert_eq!(found(&[3, 0, 1]), [Violation::Swapped(0, 3), Violation::Swapped(1, 3)]);
}
