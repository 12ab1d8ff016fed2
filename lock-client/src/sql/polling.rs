//! Waiters that try from time to time, because nobody notifies them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time::sleep};

use crate::retry::pauses;

/// The longest pause is half as long again, and so shorter than a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(650);

/// Notifies a waiter again and again: at first often, and at least once a second. It is left out while
/// it need not try.
pub(crate) async fn poll(freed: Arc<Notify>, must_try: impl Fn() -> bool) {
    for pause in pauses(LONGEST_PAUSE) {
        sleep(pause).await;
        if must_try() {
            freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_that_polls_tries_once_a_second_or_more_often() {
        let longest = pauses(LONGEST_PAUSE).take(1_000).max();
        assert!(longest < Some(Duration::from_secs(1)), "{longest:?}");
    }
}
