//! Tasks that outlive the call that began them, and how to wait for their end.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::{runtime::Handle, task::JoinHandle};
use tokio_util::task::TaskTracker;

/// The tasks that a client runs in the background. Clones share them.
///
/// Each call of [`settled`](Self::settled) starts a new generation. So it waits only for tasks that began
/// before it, and ends also where new tasks begin all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    /// The last tracker has the tasks that begin now.
    generations: Arc<Mutex<Vec<TaskTracker>>>,
}

impl Background {
    /// Begins a task on the present runtime.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_on(task, &Handle::current())
    }

    /// Begins a task on a runtime.
    pub(crate) fn spawn_on<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
        runtime: &Handle,
    ) -> JoinHandle<T> {
        let mut generations = self.generations();
        if generations.is_empty() {
            generations.push(new_generation());
        }
        generations[generations.len() - 1].spawn_on(task, runtime)
    }

    /// Waits until all tasks have ended that began before this call.
    pub(crate) async fn settled(&self) {
        let begun = {
            let mut generations = self.generations();
            generations.retain(|generation| !generation.is_empty());
            let begun = generations.clone();
            generations.push(new_generation());
            begun
        };
        for generation in begun {
            generation.wait().await;
        }
    }

    fn generations(&self) -> MutexGuard<'_, Vec<TaskTracker>> {
        self.generations.lock().expect("nothing panics while it holds this")
    }
}

/// A tracker is closed from the start: the wait for an open one never ends.
fn new_generation() -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
}
