//! A task that runs as long as it has something to do.

use std::sync::{Mutex, MutexGuard};

use tokio::task::JoinHandle;

/// It may also end with its runtime.
#[derive(Default)]
pub(crate) struct Keeper(Mutex<Option<JoinHandle<()>>>);

impl Keeper {
    /// Starts the task, unless it runs. What it has to do is recorded before.
    pub(crate) fn start(&self, start: impl FnOnce() -> JoinHandle<()>) {
        let mut task = self.task();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(start());
        }
    }

    /// Ends the task, which calls this, if it has nothing to do any more, and returns whether it must end. What
    /// is recorded later starts another one.
    pub(crate) fn end_if(&self, has_nothing_to_do: impl FnOnce() -> bool) -> bool {
        let mut task = self.task();
        let ends = has_nothing_to_do();
        if ends {
            *task = None;
        }
        ends
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.0.lock().expect("nothing panics while it holds this")
    }
}
