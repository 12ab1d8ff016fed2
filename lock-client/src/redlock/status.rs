//! The state of a lock on several nodes.

use std::{cmp::Reverse, time::Duration};

use super::majority::is_undecided;
use crate::backend::{HeldLock, Status};

/// Combines the states on the nodes that have answered. The lock is held if one holder has a
/// majority, and until it has no majority any more. Returns `None` while the outstanding nodes
/// decide.
///
/// A holder is new for every round, so it identifies the owner. On nodes that the owner has joined,
/// the grant may be another.
pub(super) fn combine(answers: &[Status], outstanding: usize, majority: usize) -> Option<Status> {
    if answers.len() < majority {
        return None;
    }
    let held: Vec<_> = answers.iter().filter_map(|status| status.held.as_ref()).collect();
    let same_holder = |one: &HeldLock| -> Vec<_> {
        let holder = &one.ownership.holder;
        held.iter().filter(|other| other.ownership.holder == *holder).collect()
    };
    let most = held.iter().map(|one| same_holder(one)).max_by_key(Vec::len).unwrap_or_default();
    if is_undecided(most.len(), outstanding, majority) {
        return None;
    }
    let held = (most.len() >= majority).then(|| {
        let mut remaining: Vec<_> = most.iter().map(|held| held.remaining).collect();
        remaining.sort_by_key(|remaining| Reverse(remaining.unwrap_or(Duration::MAX)));
        let token = most.iter().map(|held| held.token).max();
        HeldLock {
            token: token.expect("a majority is at least one node"),
            ownership: most[0].ownership.clone(),
            remaining: remaining[majority - 1],
            since_ms: None,
            label: String::new(),
            nodes: Some(most.len()),
        }
    });
    let last_token = answers.iter().filter_map(|status| status.last_token).max();
    Some(Status { held, last_token, queued: 0 })
}
