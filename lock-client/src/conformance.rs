//! The suite that every lock service must pass.
//!
//! Implement [`Subject`] for the service, and pass it to [`check`]. The suite tries each promise that
//! [`backend`](crate::backend) lists, on the real service: it races clients for a lock, drops
//! requests half way, lets leases expire, and pauses, stops and restarts the service.
//!
//! It takes some seconds, and some ttls. A service that passes once may still have a race that shows
//! rarely: run it often.

mod dropped;
mod exclusion;
mod faults;
mod holding;
mod queue;
mod subject;
mod try_lock;
mod waiting;

use std::error::Error;

use subject::disturbed;
pub use subject::{Failure, Subject};

use crate::causes::causes;

/// A lock service broke a promise.
#[derive(Debug, thiserror::Error)]
#[error("{promise}: {found}")]
#[non_exhaustive]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// What the suite has seen instead.
    pub found: String,
}

/// The outcome of one check: what it has seen instead of the promise, if it was broken.
type Checked<T = ()> = Result<T, Failure>;

/// Fails the check unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($found:tt)+) => {
        if !$holds {
            return Err(format!($($found)+).into());
        }
    };
}
use ensure;

/// Runs each check, and names the promise that it is about.
macro_rules! promises {
    ($subject:ident: $($promise:literal => $check:path,)*) => {
        $($check($subject).await.map_err(|found| violation($promise, &*found))?;)*
    };
}

/// Checks that a lock service keeps the promises of a [`Backend`](crate::backend::Backend).
///
/// # Errors
/// The first broken promise. A service that could not be paused, stopped or started is reported the
/// same way, and the text says that no promise was broken.
pub async fn check(subject: &mut impl Subject) -> Result<(), Violation> {
    promises! {
        subject:
        "one holder at a time" => exclusion::one_holder_at_a_time,
        "each token is higher than the last" => exclusion::tokens_grow,
        "names differ byte for byte" => exclusion::names_differ_byte_for_byte,
        "the deadline counts from before the request" =>
            exclusion::deadline_counts_from_before_the_request,
        "a lock is granted for its ttl" => holding::ttl_is_kept,
        "a repeated try returns the same grant, and sets the full ttl" =>
            holding::same_holder_gets_the_same_grant,
        "a renewal sets the full ttl, and returns the token" => holding::renewal_sets_the_full_ttl,
        "only the holder releases" => holding::others_can_not_release,
        "an expired lease is not renewed" => holding::expired_lease_is_not_renewed,
        "a reissue returns a higher token, and later grants stay above it" =>
            holding::reissue_returns_a_higher_token,
        "an ownership ends with its release" => holding::release_ends_the_ownership,
        "a reissue keeps the ttl" => holding::reissue_keeps_the_ttl,
        "a release notifies the waiter" => waiting::release_notifies_the_waiter,
        "a release notifies all waiters that are in no order" =>
            waiting::release_notifies_all_waiters,
        "a fair order that is missing is invalid" => queue::missing_order_is_invalid,
        "the queue is fair" => queue::queue_is_fair,
        "a waiter that is gone holds up nobody" => queue::waiter_that_is_gone_is_skipped,
        "a dropped request leaves nothing behind" => faults::dropped_requests_leave_nothing_behind,
        "a waiter that gives up leaves the queue" => queue::waiter_that_gives_up_leaves,
        "the outcome of a request to a paused service is unknown" =>
            faults::paused_service_is_unavailable,
        "a stopped service is unavailable, until it is back" =>
            faults::stopped_service_is_unavailable,
        "a subscription survives a restart of the service" =>
            waiting::subscription_survives_a_restart,
    }
    Ok(())
}

fn violation(promise: &'static str, found: &(dyn Error + 'static)) -> Violation {
    let mut text = found.to_string();
    for cause in causes(found).skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    Violation { promise, found: text }
}
