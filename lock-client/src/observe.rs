//! What can be seen from outside: metrics by the `metrics` crate, and spans and events by `tracing`.
//!
//! Each acquire is a span `acquire`, with the lock's `name` and the `holder`, as far as others may know
//! it. Each lease is a span `lease`, which has its present `token` besides, and in which the bodies of
//! [`Locks::with`](crate::Locks::with) run. Both are of level INFO.
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

use fence::{Holder, ResourceName, Token};
use tracing::Span;

use crate::{AcquireError, Lease, backend::BackendError, lease::Loss};

pub(crate) fn acquiring(name: &ResourceName, holder: &Holder) -> Span {
    tracing::info_span!("acquire", %name, holder = holder.redacted())
}

/// The span of a lease, which outlives that of the acquire.
pub(crate) fn holding(caller: &Span, name: &ResourceName, holder: &Holder, token: Token) -> Span {
    let (holder, token) = (holder.redacted(), token.as_u64());
    tracing::info_span!(parent: caller, "lease", %name, holder, token)
}

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
        Ok(lease) => {
            let token = lease.token().ok().map(Token::as_u64);
            tracing::debug!(token, wait_ms = millis(wait), "acquired");
        }
        Err(error) => tracing::debug!(%error, wait_ms = millis(wait), "not acquired"),
    }
}

pub(crate) fn renewed() {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "renewed").increment(1);
}

pub(crate) fn renewal_refused() {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "lost").increment(1);
}

pub(crate) fn not_renewed(error: &BackendError) {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "unavailable").increment(1);
    tracing::warn!(%error, "could not renew a lease");
}

pub(crate) fn reissued(span: &Span, token: Token) {
    span.record("token", token.as_u64());
    metrics::counter!("fenced_lock_reissues_total").increment(1);
    tracing::warn!(parent: span, "swapped the token for a higher one");
}

pub(crate) fn lost(span: &Span, loss: Loss, hold: Duration) {
    let reason = match loss {
        Loss::Expired => "expired",
        Loss::NotOurs => "not-ours",
        Loss::Refused => "refused",
    };
    metrics::counter!("fenced_lock_losses_total", "reason" => reason).increment(1);
    metrics::histogram!("fenced_lock_hold_seconds").record(hold);
    tracing::warn!(parent: span, reason, hold_ms = millis(hold), "lost a lease");
}

pub(crate) fn released(span: &Span, hold: Duration) {
    metrics::histogram!("fenced_lock_hold_seconds").record(hold);
    tracing::debug!(parent: span, hold_ms = millis(hold), "released");
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}
