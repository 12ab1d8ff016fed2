//! The history of a run, and its violations.

use std::{collections::HashMap, time::Duration};

use fence::{Holder, Token};

/// What the clients of one run observed. Times are counted from its beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) issued: Vec<Issued>,
    pub(super) spans: Vec<Span>,
    pub(super) appends: Vec<Append>,
    /// The appends in the storage at the end.
    pub(super) value: Vec<usize>,
}

/// A token that a client received from an acquire, a renewal or a reissue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) holder: Holder,
    pub(super) token: Token,
    pub(super) requested: Duration,
    pub(super) received: Duration,
}

/// The time in which a lease was observed to hold, from one renewal to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) holder: Holder,
    pub(super) from: Duration,
    pub(super) until: Duration,
    /// When its deadline has passed for certain.
    pub(super) over: Duration,
}

/// A write that appends its own number, which is its index in the history, to the value that was
/// read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Append {
    pub(super) sent: Duration,
    /// `None` if it was rejected, or if the client did not wait for the answer.
    pub(super) acknowledged: Option<Duration>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// Two holders received the same token.
    SharedToken(Issued, Issued),
    /// The second token was requested after the first was received, and is not above it; or, with
    /// the same holder, is below it.
    OutOfOrder(Issued, Issued),
    /// A lease still held after its deadline.
    HeldTooLong(Span),
    /// Two leases held at the same time.
    HeldTogether(Span, Span),
    /// An acknowledged append is missing in the value.
    Lost(usize),
    /// The second append was sent after the first was acknowledged, and precedes it.
    Swapped(usize, usize),
    /// An append is in the value more than once.
    Repeated(usize),
}

impl History {
    /// Returns the violations of the promises that hold whatever the nodes' clocks do.
    pub(super) fn violations(&self) -> Vec<Violation> {
        let mut violations = self.wrong_tokens();
        let too_long = self.spans.iter().filter(|span| span.until > span.over);
        violations.extend(too_long.cloned().map(Violation::HeldTooLong));
        violations.extend(self.wrong_appends());
        violations
    }

    /// Returns the leases that held at the same time. There are none as long as no node's clock
    /// jumps.
    pub(super) fn held_together(&self) -> Vec<Violation> {
        let overlap = |(one, other): &(&Span, &Span)| {
            one.holder != other.holder && one.from.max(other.from) < one.until.min(other.until)
        };
        let pairs = pairs(&self.spans).filter(overlap);
        pairs.map(|(one, other)| Violation::HeldTogether(one.clone(), other.clone())).collect()
    }

    fn wrong_tokens(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (one, other) in pairs(&self.issued) {
            let (first, second) =
                if one.received <= other.requested { (one, other) } else { (other, one) };
            let is_above = if first.holder == second.holder {
                second.token >= first.token
            } else {
                second.token > first.token
            };
            if first.received <= second.requested && !is_above {
                violations.push(Violation::OutOfOrder(first.clone(), second.clone()));
            }
            if one.token == other.token && one.holder != other.holder {
                violations.push(Violation::SharedToken(one.clone(), other.clone()));
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

/// Returns every pair.
fn pairs<T>(all: &[T]) -> impl Iterator<Item = (&T, &T)> {
    let others = |(number, one)| all[number + 1..].iter().map(move |other| (one, other));
    all.iter().enumerate().flat_map(others)
}
