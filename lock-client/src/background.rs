//! What goes on after its caller has gone: the undoing of what was dropped.

use tokio::{runtime::Handle, sync::watch};

/// The background tasks of the locks of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Background {
    running: watch::Sender<usize>,
}

/// Counts as a running task until this is dropped: by its end, or with its runtime.
struct Running(watch::Sender<usize>);

impl Background {
    pub(crate) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        // It counts from now on, not only from when the runtime comes to it.
        let running = Running::begin(self.running.clone());
        runtime.spawn(async move {
            let _running = running;
            task.await;
        });
    }

    /// Waits until no task runs.
    pub(crate) async fn done(&self) {
        let counted = self.running.subscribe().wait_for(|running| *running == 0).await.is_ok();
        assert!(counted, "the sender of the count is here");
    }
}

impl Running {
    fn begin(running: watch::Sender<usize>) -> Self {
        running.send_modify(|running| *running += 1);
        Self(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn background_is_done_when_its_tasks_have_ended_and_not_before() {
        let background = Background::default();
        background.done().await;
        let over = Arc::new(AtomicBool::new(false));
        let (go_on, waits) = tokio::sync::oneshot::channel();
        let ended = over.clone();
        background.spawn(&Handle::current(), async move {
            waits.await.unwrap();
            ended.store(true, Ordering::Relaxed);
        });
        let at_once = tokio::time::timeout(Duration::ZERO, background.done()).await;
        assert!(at_once.is_err(), "a task runs");
        go_on.send(()).unwrap();
        background.done().await;
        assert!(over.load(Ordering::Relaxed));
    }

    #[test]
    fn task_that_ends_with_its_runtime_is_not_waited_for() {
        let background = Background::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        background.spawn(runtime.handle(), std::future::pending());
        drop(runtime);
        let another = tokio::runtime::Builder::new_current_thread().build().unwrap();
        another.block_on(background.done());
    }
}
