//! Waiters that try from time to time, because nobody notifies them.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinHandle},
    time::sleep,
};

use crate::retry::pauses;

/// The longest pause is half as long again, and so shorter than a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(650);

/// Ends a task when it is dropped.
pub(crate) struct AbortOnDrop(AbortHandle);

impl<T> From<JoinHandle<T>> for AbortOnDrop {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Notifies a waiter again and again: at first often, and at least once a second.
pub(crate) async fn poll(freed: Arc<Notify>) {
    for pause in pauses(LONGEST_PAUSE) {
        sleep(pause).await;
        freed.notify_one();
    }
}
