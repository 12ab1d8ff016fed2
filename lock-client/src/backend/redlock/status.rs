//! What a lock is on several nodes.

use std::time::Duration;

use crate::backend::{Held, Status};

/// What a lock is, by what each of the nodes says that have answered: it is held if one ownership has a
/// majority, for as long as it has.
pub(super) fn of_all(told: Vec<Status>, majority: usize) -> Status {
    let last_token = told.iter().filter_map(|status| status.last_token).max();
    let held: Vec<_> = told.into_iter().filter_map(|status| status.held).collect();
    let held = held.iter().find_map(|one| {
        let mut same: Vec<_> =
            held.iter().filter(|other| other.ownership == one.ownership).collect();
        same.sort_by_key(|held| std::cmp::Reverse(held.remaining.unwrap_or(Duration::MAX)));
        let remaining = same.get(majority - 1)?.remaining;
        let token = same.iter().map(|held| held.token).max().unwrap_or(one.token);
        Some(Held { token, ownership: one.ownership.clone(), remaining })
    });
    Status { held, last_token, queued: 0 }
}
