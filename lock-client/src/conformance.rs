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

pub use subject::{Failure, Subject};

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

/// The outcome of one check.
type Checked = Result<(), Violation>;

/// Checks that a lock service keeps the promises of a [`Backend`](crate::backend::Backend).
///
/// # Errors
/// The first broken promise. A service that could not be paused, stopped or started is reported the
/// same way.
pub async fn check(subject: &mut impl Subject) -> Result<(), Violation> {
    exclusion::one_holder_at_a_time(subject).await?;
    exclusion::tokens_grow(subject).await?;
    exclusion::names_differ_byte_for_byte(subject).await?;
    exclusion::deadline_counts_from_before_the_request(subject).await?;
    holding::ttl_is_kept(subject).await?;
    holding::same_holder_gets_the_same_grant(subject).await?;
    holding::renewal_sets_the_full_ttl(subject).await?;
    holding::others_can_not_release(subject).await?;
    holding::expired_lease_is_not_renewed(subject).await?;
    holding::reissue_returns_a_higher_token(subject).await?;
    holding::release_ends_the_ownership(subject).await?;
    holding::reissue_keeps_the_ttl(subject).await?;
    waiting::release_notifies_the_waiter(subject).await?;
    waiting::release_notifies_all_waiters(subject).await?;
    queue::missing_order_is_invalid(subject).await?;
    queue::queue_is_fair(subject).await?;
    queue::waiter_that_is_gone_is_skipped(subject).await?;
    faults::dropped_requests_leave_nothing_behind(subject).await?;
    queue::waiter_that_gives_up_leaves(subject).await?;
    faults::paused_service_is_unavailable(subject).await?;
    faults::stopped_service_is_unavailable(subject).await?;
    waiting::subscription_survives_a_restart(subject).await
}

/// Makes a violation of a promise.
fn violation(promise: &'static str, found: impl std::fmt::Display) -> Violation {
    Violation { promise, found: found.to_string() }
}
