//! What can be seen from outside: metrics by the `metrics` crate, and events by `tracing`.
//!
//! | metric | kind | what |
//! |---|---|---|
//! | `fenced_lock_wait_seconds` | histogram | from the first try to the end of an acquire, by `outcome`: `acquired`, `contended`, `unavailable`, `rejected` |
//! | `fenced_lock_hold_seconds` | histogram | from when a lock was asked for to when its lease was released or lost |
//! | `fenced_lock_contended_total` | counter | acquires that found the lock taken |
//! | `fenced_lock_renewals_total` | counter | renewals, by `outcome`: `renewed`, `lost`, `unavailable` |
//! | `fenced_lock_losses_total` | counter | leases lost while they were held, by `reason`: `expired`, `not-ours`, `refused` |
//! | `fenced_lock_reissues_total` | counter | tokens swapped for higher ones |

use std::time::Duration;

use fence::{ResourceName, Token};

use crate::{AcquireError, Lease, backend::BackendError, lease::Loss};

pub(crate) fn contended() {
    metrics::counter!("fenced_lock_contended_total").increment(1);
}

pub(crate) fn waited(wait: Duration, result: &Result<Lease, AcquireError>) {
    let outcome = match result {
        Ok(_) => "acquired",
        Err(AcquireError::Contended { .. }) => "contended",
        Err(AcquireError::Unavailable(_)) => "unavailable",
        Err(AcquireError::Rejected(_)) => "rejected",
        Err(AcquireError::Lost(_)) => unreachable!("an acquire depends on no other lease"),
    };
    metrics::histogram!("fenced_lock_wait_seconds", "outcome" => outcome).record(wait);
    match result {
        Ok(lease) => tracing::debug!(
            name = %lease.name(), holder = lease.holder().redacted(),
            token = lease.token().ok().map(Token::as_u64), wait_ms = millis(wait), "acquired"
        ),
        Err(error) => tracing::debug!(%error, wait_ms = millis(wait), "not acquired"),
    }
}

pub(crate) fn renewed() {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "renewed").increment(1);
}

pub(crate) fn renewal_refused() {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "lost").increment(1);
}

pub(crate) fn not_renewed(name: &ResourceName, error: &BackendError) {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "unavailable").increment(1);
    tracing::warn!(%name, %error, "could not renew a lease");
}

pub(crate) fn reissued(name: &ResourceName, token: Token) {
    metrics::counter!("fenced_lock_reissues_total").increment(1);
    tracing::warn!(%name, token = token.as_u64(), "swapped the token for a higher one");
}

pub(crate) fn lost(name: &ResourceName, loss: Loss, hold: Duration) {
    let reason = match loss {
        Loss::Expired => "expired",
        Loss::NotOurs => "not-ours",
        Loss::Refused => "refused",
    };
    metrics::counter!("fenced_lock_losses_total", "reason" => reason).increment(1);
    metrics::histogram!("fenced_lock_hold_seconds").record(hold);
    tracing::warn!(%name, reason, hold_ms = millis(hold), "lost a lease");
}

pub(crate) fn released(name: &ResourceName, hold: Duration) {
    metrics::histogram!("fenced_lock_hold_seconds").record(hold);
    tracing::debug!(%name, hold_ms = millis(hold), "released");
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
