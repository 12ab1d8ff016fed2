//! The task that renews a lease.

use std::{sync::Arc, time::Duration};

use super::held::Held;
use crate::{
    clock::Moment,
    error::RenewError,
    observe::{self, Loss},
    retry::pauses,
};

/// Renews at a third of the ttl, again and again, until the lease is lost or `max_hold` ends.
pub(super) async fn renew_until_lost(held: Arc<Held>, max_hold: Duration) {
    let end = held.began + max_hold;
    let third = held.ttl.as_duration() / 3;
    let mut asked = held.began;
    let mut last = held.ttl.as_duration() >= max_hold;
    while !last {
        // 1. Sleep for a third of the ttl, or a little less at random: locks that were acquired
        // together are not renewed together. After a suspension of the machine, this ends soon.
        (asked + third.mul_f64(0.9 + 0.1 * fastrand::f64())).passed().await;
        let mut pauses = pauses(third / 4);
        loop {
            // 2. Renew for the full ttl. The last renewal is only for the rest of `max_hold`.
            asked = Moment::now();
            let ttl = || {
                let left = end.remaining();
                last = left < held.ttl.as_duration();
                held.ttl.at_most(left)
            };
            match held.renew(ttl).await {
                Ok(()) => break,
                Err(RenewError::Lost(_)) => return,
                Err(error @ RenewError::LockService { .. }) => observe::not_renewed(&error),
            }
            // 3. After a failure, try again after a pause, until the deadline.
            let pause = pauses.next().expect("the pauses never end");
            (Moment::now() + pause.min(held.remaining())).passed().await;
        }
    }
    // 4. After the last renewal, the lease ends by itself.
    (Moment::now() + held.remaining()).passed().await;
    held.lose(Loss::Expired);
}
