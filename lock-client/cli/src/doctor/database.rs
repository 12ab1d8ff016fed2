//! What the checks of all databases share.

use std::time::Duration;

use doctor::{Check, Verdict};
use lock_client::{Locks, Terms, Ttl};

use super::locking::{self, UNUSABLE};
use crate::failure::Failure;

/// The name of the lock that is acquired as a test. A database never deletes the row of a lock, so
/// that every run has the same.
const LOCK: &str = "lock-client-doctor";
const TTL: Duration = Duration::from_secs(10);

/// The failure that a database does not answer.
pub(super) fn unavailable(locks: &Locks, error: &sqlx::Error) -> Failure {
    // `Display` adds the line in PostgreSQL's own source.
    let reason = match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    };
    Failure::Unavailable(format!("{}: {reason}", locks.address()))
}

/// Acquires, renews and releases a lock. Another run of this check may have it at the moment.
pub(super) async fn locking(locks: &Locks) -> Check {
    let name = LOCK.parse().expect("it is a valid name");
    let ttl = Ttl::new(TTL).expect("10 s is a valid ttl");
    let used = locking::use_lock(locks, &name, Terms::new(ttl).wait(TTL).fair()).await;
    let done = format!("acquired, renewed and released a lock; the row of `{name}` stays");
    locking::check(used, done, "resolve the error, and the other checks; then run this again")
}

/// Reports functions or tables of the locks that are not among those that are there.
pub(super) fn tables(needed: &[&'static str], there: &[&str], migration: &str) -> Check {
    const NAME: &str = "lock_tables";
    let missing: Vec<_> = needed.iter().copied().filter(|name| !there.contains(name)).collect();
    if missing.is_empty() {
        return Check::ok(NAME, "the locks are installed");
    }
    Check::bad(
        Verdict::Unfit,
        NAME,
        format!("missing, or not allowed for this user: {}", missing.join(", ")),
        UNUSABLE,
        format!("apply {migration} (again), and give the user its rights: migrations/README.md"),
    )
}
