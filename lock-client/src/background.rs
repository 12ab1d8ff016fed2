//! Tasks that outlive the call that started them.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

/// The tasks that a client runs in the background. Clones share them.
///
/// Each call of [`wait`](Self::wait) starts a new generation. So it waits only for tasks that were
/// started before it, and ends even if new tasks are started all the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    /// Every task holds a receiver of its generation. A generation has ended when no receiver is
    /// left. The tasks that start now belong to the last one.
    generations: Arc<Mutex<Vec<watch::Sender<()>>>>,
}

impl Background {
    /// Starts a task on the present runtime.
    #[cfg(any(feature = "mariadb", feature = "postgres", feature = "redlock", feature = "sqlite"))]
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.spawn_on(task, &Handle::current())
    }

    /// Starts a task on a runtime.
    pub(crate) fn spawn_on<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
        runtime: &Handle,
    ) -> JoinHandle<T> {
        let alive = {
            let mut generations = self.generations();
            if generations.is_empty() {
                generations.push(watch::Sender::default());
            }
            generations[generations.len() - 1].subscribe()
        };
        runtime.spawn(async move {
            let _alive = alive;
            task.await
        })
    }

    /// Waits for all tasks that were started before this call, and for the tasks that those start:
    /// the release of a dropped lease asks each node in a task of its own.
    pub(crate) async fn wait(&self) {
        self.wait_for_started().await;
        self.wait_for_started().await;
    }

    async fn wait_for_started(&self) {
        let started = {
            let mut generations = self.generations();
            generations.retain(|generation| !generation.is_closed());
            let started = generations.clone();
            generations.push(watch::Sender::default());
            started
        };
        for generation in started {
            generation.closed().await;
        }
    }

    fn generations(&self) -> MutexGuard<'_, Vec<watch::Sender<()>>> {
        self.generations.lock().expect("nothing panics while it holds this")
    }
}

/// Ends a task when it is dropped.
#[cfg(any(
    feature = "etcd",
    feature = "mariadb",
    feature = "postgres",
    feature = "sqlite",
    feature = "zookeeper"
))]
pub(crate) struct AbortOnDrop(tokio::task::AbortHandle);

#[cfg(any(
    feature = "etcd",
    feature = "mariadb",
    feature = "postgres",
    feature = "sqlite",
    feature = "zookeeper"
))]
impl<T> From<JoinHandle<T>> for AbortOnDrop {
    fn from(task: JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }
}

#[cfg(any(
    feature = "etcd",
    feature = "mariadb",
    feature = "postgres",
    feature = "sqlite",
    feature = "zookeeper"
))]
impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn wait_includes_a_task_that_a_waited_for_task_starts() {
        let background = Background::default();
        let has_ended = Arc::new(AtomicBool::new(false));
        let (children, ended) = (background.clone(), has_ended.clone());
        background.spawn(async move {
            // The wait has begun by now.
            yield_now().await;
            children.spawn(async move {
                yield_now().await;
                ended.store(true, Ordering::Relaxed);
            });
        });
        background.wait().await;
        assert!(has_ended.load(Ordering::Relaxed));
    }
}
