//! Waiters that try from time to time, because nobody notifies them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time::sleep};

use crate::{backend::Wakeups, background::AbortOnDrop, retry::pauses};

/// The longest pause is half as long again, and so shorter than a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(650);

/// Returns a subscription that notifies a waiter again and again.
#[cfg(any(feature = "mariadb", feature = "sqlite"))]
pub(crate) fn subscribe() -> Wakeups {
    let freed = Arc::new(Notify::new());
    let polling: AbortOnDrop = tokio::spawn(poll(freed.clone())).into();
    Wakeups::new(freed, polling)
}

/// Notifies a waiter again and again: at first often, and at least once a second.
pub(crate) async fn poll(freed: Arc<Notify>) {
    for pause in pauses(LONGEST_PAUSE) {
        sleep(pause).await;
        freed.notify_one();
    }
}
