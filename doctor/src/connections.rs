//! The room that a limit of connections leaves to further clients of the locks.

use crate::check::{Check, Verdict};

/// How many waiting clients must find room.
const WAITING_CLIENTS: i64 = 10;

/// Compares a limit of connections with what clients of the locks need, each of which has so many while
/// it waits.
pub(crate) fn room(limit: i64, open: i64, of_each: i64) -> Check {
    let room = (limit - open).max(0) / of_each;
    let found = format!("at most {limit}, {open} open: room for {room} waiting clients");
    Check::ok("connections", found).unless(
        room >= WAITING_CLIENTS,
        Verdict::Warning,
        "no lock that is held, because its client keeps a connection; but further clients can't wait for a lock",
        "raise the limit, or end connections that are idle",
    )
}
