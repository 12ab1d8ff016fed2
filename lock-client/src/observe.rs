//! Metrics by the crate `metrics`, and spans and events by `tracing`.
//!
//! Each acquire is a span `acquire` with the lock's `name` and the `holder`, shortened because the
//! whole holder is a secret. Each lease is a span `lease`, which has the present `token` too. The
//! bodies of [`Locks::with`](crate::Locks::with) run in it. Both spans have the level INFO.
//!
//! | metric | kind | meaning |
//! |---|---|---|
//! | `fenced_lock_wait_seconds` | histogram | the time from the first try to the end of an acquire, by `outcome`: `acquired`, `contended`, `unavailable`, `rejected`, `invalid` |
//! | `fenced_lock_hold_seconds` | histogram | the time from the request for a lock to the release or loss of its lease |
//! | `fenced_lock_contended_total` | counter | acquires that found the lock held |
//! | `fenced_lock_renewals_total` | counter | renewals, by `outcome`: `renewed`, `lost`, `unavailable` |
//! | `fenced_lock_losses_total` | counter | leases lost while they were held, by `reason`: `expired`, `not-ours`, `rejected` |
//! | `fenced_lock_reissues_total` | counter | tokens swapped for higher ones |

use std::{error::Error, time::Duration};

use fence::{Holder, ResourceName, Token};
use tracing::Span;

use crate::error::{AcquireError, RenewError};

/// Why a lease ended that was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its deadline passed.
    Expired,
    /// The lock service reported that the lock does not belong to this ownership.
    NotOurs,
    /// The storage rejected the token, because another client was let in.
    Rejected,
}

pub(crate) fn acquiring(name: &ResourceName, holder: &Holder) -> Span {
    tracing::info_span!("acquire", %name, holder = holder.redacted())
}

/// The span of a lease. It outlives the span of the acquire.
pub(crate) fn holding(caller: &Span, name: &ResourceName, holder: &Holder, token: Token) -> Span {
    let token = token.as_u64();
    tracing::info_span!(parent: caller, "lease", %name, holder = holder.redacted(), token)
}

pub(crate) fn contended() {
    metrics::counter!("fenced_lock_contended_total").increment(1);
}

pub(crate) fn acquired(wait: Duration, token: Option<Token>) {
    waited(wait, "acquired");
    let token = token.map(Token::as_u64);
    tracing::debug!(token, wait_ms = millis(wait), "acquired");
}

pub(crate) fn not_acquired(wait: Duration, error: &AcquireError) {
    waited(
        wait,
        match error {
            AcquireError::Contended { .. } => "contended",
            AcquireError::Unavailable { .. } => "unavailable",
            AcquireError::Rejected { .. } => "rejected",
            AcquireError::Invalid { .. } => "invalid",
            AcquireError::Lost(_) => unreachable!("an acquire depends on no other lease"),
        },
    );
    tracing::debug!(error = error as &dyn Error, wait_ms = millis(wait), "not acquired");
}

fn waited(wait: Duration, outcome: &'static str) {
    metrics::histogram!("fenced_lock_wait_seconds", "outcome" => outcome).record(wait);
}

pub(crate) fn renewed() {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "renewed").increment(1);
}

pub(crate) fn renewal_rejected() {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "lost").increment(1);
}

pub(crate) fn not_renewed(error: &RenewError) {
    metrics::counter!("fenced_lock_renewals_total", "outcome" => "unavailable").increment(1);
    tracing::warn!(error = error as &dyn Error, "could not renew a lease");
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
        Loss::Rejected => "rejected",
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
