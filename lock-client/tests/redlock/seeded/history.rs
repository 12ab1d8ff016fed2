//! What the clients of a run saw, and what was wrong with it.

use std::{collections::HashMap, time::Duration};

use fence::{Holder, Token};

/// What the clients of one run saw. Moments are counted from its begin.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) told: Vec<Told>,
    pub(super) spans: Vec<Span>,
    pub(super) appends: Vec<Append>,
    /// The appends that the storage has in the end.
    pub(super) value: Vec<usize>,
}

/// A token that a client was told, by an acquire, a renewal or a reissue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) holder: Holder,
    pub(super) token: Token,
    pub(super) asked: Duration,
    pub(super) at: Duration,
}

/// From when and until when a lease was seen to hold, from one setting of its ttl to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) holder: Holder,
    pub(super) from: Duration,
    pub(super) until: Duration,
    /// When its deadline has passed for certain.
    pub(super) over: Duration,
}

/// A write that adds its own number, its place in the history, to the value that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Append {
    pub(super) sent: Duration,
    /// `None` if it was refused, or nobody waited for the answer.
    pub(super) acknowledged: Option<Duration>,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// A token was told to two holders.
    TokenOfTwo(Told, Told),
    /// The second was asked for after the first was told, and isn't above it, or, if it is the same
    /// holder's, is below it.
    OutOfOrder(Told, Told),
    /// A lease still held when its deadline had passed.
    HeldTooLong(Span),
    /// Two leases held at once.
    BothHeld(Span, Span),
    /// An acknowledged append is not in the value.
    Lost(usize),
    /// The second was sent after the first was acknowledged, and precedes it.
    Swapped(usize, usize),
    /// It is in the value more than once.
    Repeated(usize),
}

impl History {
    /// What was wrong that must not be whatever the nodes' clocks do.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut violations = self.wrong_tokens();
        let too_long = self.spans.iter().filter(|span| span.until > span.over);
        violations.extend(too_long.cloned().map(Violation::HeldTooLong));
        violations.extend(self.wrong_appends());
        violations
    }

    /// Which leases held at once: none, as long as no node's clock jumps.
    pub(super) fn held_at_once(&self) -> Vec<Violation> {
        let at_once = |(one, other): &(&Span, &Span)| {
            one.holder != other.holder && one.from.max(other.from) < one.until.min(other.until)
        };
        let pairs = pairs(&self.spans).filter(at_once);
        pairs.map(|(one, other)| Violation::BothHeld(one.clone(), other.clone())).collect()
    }

    fn wrong_tokens(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (one, other) in pairs(&self.told) {
            let (first, second) = if one.at <= other.asked { (one, other) } else { (other, one) };
            let is_above = if first.holder == second.holder {
                second.token >= first.token
            } else {
                second.token > first.token
            };
            if first.at <= second.asked && !is_above {
                violations.push(Violation::OutOfOrder(first.clone(), second.clone()));
            }
            if one.token == other.token && one.holder != other.holder {
                violations.push(Violation::TokenOfTwo(one.clone(), other.clone()));
            }
        }
        violations
    }

    fn wrong_appends(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        let mut places = HashMap::new();
        for (place, &number) in self.value.iter().enumerate() {
            if places.insert(number, place).is_some() {
                violations.push(Violation::Repeated(number));
            }
        }
        let acknowledged =
            |(number, append): (usize, &Append)| Some((number, append.acknowledged?));
        for (number, at) in self.appends.iter().enumerate().filter_map(acknowledged) {
            let Some(place) = places.get(&number) else {
                violations.push(Violation::Lost(number));
                continue;
            };
            let later = |&(_, append): &(usize, &Append)| append.sent >= at;
            for (later, _) in self.appends.iter().enumerate().filter(later) {
                if places.get(&later).is_some_and(|later| later < place) {
                    violations.push(Violation::Swapped(number, later));
                }
            }
        }
        violations
    }
}

/// Each two of them.
fn pairs<T>(all: &[T]) -> impl Iterator<Item = (&T, &T)> {
    let others = |(number, one)| all[number + 1..].iter().map(move |other| (one, other));
    all.iter().enumerate().flat_map(others)
}
