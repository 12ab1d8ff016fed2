//! What a lock is on several nodes.

use std::{cmp::Reverse, time::Duration};

use crate::backend::{HeldLock, Status};

/// What a lock is, by what those nodes say that have answered: it is held if one ownership has a
/// majority, for as long as it has. `None` if the nodes that are yet to answer may decide that.
pub(super) fn of_all(told: &[Status], outstanding: usize, majority: usize) -> Option<Status> {
    if told.len() < majority {
        return None;
    }
    let held: Vec<_> = told.iter().filter_map(|status| status.held.as_ref()).collect();
    let nodes_of = |one: &HeldLock| -> Vec<_> {
        held.iter().filter(|other| other.ownership == one.ownership).collect()
    };
    let most = held.iter().map(|one| nodes_of(one)).max_by_key(Vec::len).unwrap_or_default();
    if (most.len()..most.len() + outstanding).contains(&(majority - 1)) {
        return None;
    }
    let held = (most.len() >= majority).then(|| {
        let mut remaining: Vec<_> = most.iter().map(|held| held.remaining).collect();
        remaining.sort_by_key(|remaining| Reverse(remaining.unwrap_or(Duration::MAX)));
        let token = most.iter().map(|held| held.token).max();
        HeldLock {
            token: token.expect("a majority is more than none"),
            ownership: most[0].ownership.clone(),
            remaining: remaining[majority - 1],
        }
    });
    let last_token = told.iter().filter_map(|status| status.last_token).max();
    Some(Status { held, last_token, queued: 0 })
}
