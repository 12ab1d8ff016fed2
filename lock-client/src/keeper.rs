//! A task that runs as long as it has something to do.

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::watch;

use crate::mutex::Locked;

/// It may also end with its runtime.
#[derive(Default)]
pub(crate) struct Keeper {
    /// The task has the other end until its future is dropped. Its handle would say so only later.
    running: Mutex<Weak<Running>>,
    ends: watch::Sender<()>,
}

struct Running(watch::Sender<()>);

impl Drop for Running {
    fn drop(&mut self) {
        // From here on, it doesn't count as running.
        self.0.send_replace(());
    }
}

impl Keeper {
    /// Shows when a task has ended. By then, another one may have begun.
    pub(crate) fn ends(&self) -> watch::Receiver<()> {
        self.ends.subscribe()
    }

    /// Starts the task, unless it runs. What it has to do is recorded before.
    pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        if let Some((runs, task)) = self.begin(task) {
            tokio::spawn(async move {
                let _runs = runs;
                task.await;
            });
        }
    }

    /// Makes the task, and counts it as running until the first value is dropped; `None` if it runs already. Who
    /// finds that it runs also finds what `task` has changed.
    fn begin<F>(&self, task: impl FnOnce() -> F) -> Option<(Arc<Running>, F)> {
        let mut running = self.running.locked();
        (running.strong_count() == 0).then(|| {
            let runs = Arc::new(Running(self.ends.clone()));
            *running = Arc::downgrade(&runs);
            (runs, task())
        })
    }

    /// Ends the task, which calls this, if it has nothing to do any more, and returns whether it must end. What
    /// is recorded later starts another one.
    pub(crate) fn end_if(&self, has_nothing_to_do: impl FnOnce() -> bool) -> bool {
        let mut running = self.running.locked();
        let ends = has_nothing_to_do();
        if ends {
            *running = Weak::new();
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a runtime drops the futures of its tasks.
    #[test]
    fn task_may_be_started_as_soon_as_the_last_one_is_dropped() {
        let keeper = Keeper::default();
        let first = keeper.begin(|| ());
        assert!(first.is_some() && keeper.begin(|| ()).is_none(), "one runs");
        let ends = keeper.ends();
        drop(first);
        assert!(ends.has_changed().unwrap());
        let second = keeper.begin(|| ());
        assert!(second.is_some());
        // A task that ends by itself makes room for the next before it is dropped.
        assert!(keeper.end_if(|| true));
        let third = keeper.begin(|| ());
        assert!(third.is_some());
        drop(second);
        assert!(keeper.begin(|| ()).is_none(), "the third runs");
    }
}
