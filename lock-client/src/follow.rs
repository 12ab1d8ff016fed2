//! The loop of a subscription to a lock service that shows changes by watches.

use std::time::Duration;

use tokio::time::sleep;

use crate::retry::pauses;

/// The longest pause before a lost watch is made again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a waiter whose turn it is may try before its subscription looks again.
const TURN: Duration = Duration::from_millis(100);

pub(crate) trait Watcher: Sync {
    /// What a look shows.
    type Seen: Send;

    /// Looks at the lock. Returns `None` without an answer.
    fn look(&self) -> impl Future<Output = Option<Self::Seen>> + Send;

    /// Waits for a change that follows this look, and notifies the waiter at once.
    fn change(&self, seen: &mut Self::Seen) -> impl Future<Output = Change> + Send;

    /// Notifies the waiter if it may have to try, after the look that follows a change.
    fn looked(&self, before: &Self::Seen, now: &Self::Seen);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Seen,
    /// With one that makes it the waiter's turn.
    Turn,
    Lost,
}

/// Notifies the waiter, again and again. Each step begins with a look, and waits for changes that follow
/// it. So it doesn't matter how a watch ends: with a change, or because it was lost.
pub(crate) async fn follow<W: Watcher>(watcher: W, mut seen: W::Seen) {
    let mut backoff = pauses(LONGEST_PAUSE);
    loop {
        let change = watcher.change(&mut seen).await;
        if change == Change::Turn {
            // The attempt is faster without the next look. If it succeeds, the subscription ends. Nobody
            // else is before the waiter, so nothing is missed meanwhile.
            sleep(TURN).await;
        }
        let now = loop {
            if let Some(now) = watcher.look().await {
                break now;
            }
            sleep(backoff.next().expect("the pauses never end")).await;
        };
        if change == Change::Lost {
            sleep(backoff.next().expect("the pauses never end")).await;
        } else {
            backoff = pauses(LONGEST_PAUSE);
        }
        watcher.looked(&seen, &now);
        seen = now;
    }
}
