//! The task that renews a lease.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{Held, Loss, RenewError};
use crate::{clock::Moment, observe};

/// The first pause before a renewal is tried again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Renews at a third of the ttl, again and again, until the lease is lost, or is to be held no longer.
pub(super) async fn renew_until_lost(held: Arc<Held>, max_hold: Duration) {
    let end = held.began + max_hold;
    let third = held.ttl.as_duration() / 3;
    let mut asked = held.began;
    let mut last = held.ttl.as_duration() >= max_hold;
    while !last {
        // What was acquired together is not renewed together.
        sleep((asked + third.mul_f64(rand::random_range(0.9..1.0))).remaining()).await;
        let mut pause = FIRST_PAUSE;
        loop {
            asked = Moment::now();
            // The last renewal is for what is left.
            let ttl = || {
                let left = end.remaining();
                last = left < held.ttl.as_duration();
                held.ttl.at_most(left)
            };
            match held.renew(ttl).await {
                Ok(()) => break,
                Err(RenewError::Lost(_)) => return,
                Err(RenewError::LockService(error)) => observe::not_renewed(&error),
            }
            let jittered = pause.mul_f64(rand::random_range(0.5..1.5));
            sleep(jittered.min(held.remaining())).await;
            pause = (pause * 2).min(third / 4);
        }
    }
    sleep(held.remaining()).await;
    held.lose(Loss::Expired);
}
