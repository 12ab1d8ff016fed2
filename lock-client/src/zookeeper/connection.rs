//! A connection to one member, which belongs to one session.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, OnceLock},
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use spawns_core::{Spawn, Task};
use tokio::{sync::watch, task::AbortHandle, time::timeout};
use zookeeper_client::{Client, Connector, Error, MultiReadResult, MultiWriter, StateWatcher};

use super::failure::Failure;

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) member: usize,
    address: String,
    answer_timeout: Duration,
    task: ConnectionTask,
    keeps_session: bool,
}

/// The task of a client, which ends with its first connection.
///
/// By itself, the client would connect anew. Nobody would check then that the member still has sessions
/// of this time, and a connection that was left would take the session back.
#[derive(Clone, Default)]
struct ConnectionTask {
    /// Whether the connection was cut, or a request failed or was not answered in time.
    has_ended: watch::Sender<bool>,
    /// The states of the session after the connection was made.
    states: Arc<OnceLock<StateWatcher>>,
    handle: Arc<OnceLock<AbortHandle>>,
}

impl Spawn for ConnectionTask {
    fn spawn(&self, task: Task) {
        let Self { has_ended, states, handle } = self.clone();
        let mut task = Box::into_pin(task.future);
        let until_cut = poll_fn(move |context| {
            let polled = task.as_mut().poll(context);
            let is_cut = states.get().is_some_and(has_changed);
            if polled.is_pending() && !is_cut {
                return Poll::Pending;
            }
            // The next poll would connect anew.
            has_ended.send_replace(true);
            Poll::Ready(())
        });
        // A client has one task.
        handle.get_or_init(|| tokio::spawn(until_cut).abort_handle());
    }
}

impl ConnectionTask {
    fn end(&self) {
        self.has_ended.send_replace(true);
        self.handle.get().inspect(|handle| handle.abort());
    }
}

fn has_changed(states: &StateWatcher) -> bool {
    states.clone().changed().now_or_never().is_some()
}

impl Connection {
    pub(super) async fn open(
        connector: Connector,
        url: &str,
        member: usize,
        address: String,
        answer_timeout: Duration,
        keeps_session: bool,
    ) -> Result<Self, Error> {
        let task = ConnectionTask::default();
        let client = {
            let mut connecting = pin!(connector.connect(url));
            poll_fn(|context| {
                let _spawned_there = spawns_core::enter(&task);
                connecting.as_mut().poll(context)
            })
            .await?
        };
        // From here on, the task sees that its connection is cut.
        if has_changed(task.states.get_or_init(|| client.state_watcher())) {
            task.end();
        }
        Ok(Self { client, member, address, answer_timeout, task, keeps_session })
    }

    /// Waits for the answer to a request, which is sent before this is called.
    pub(super) async fn answer<T, E: Into<Error>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match timeout(self.answer_timeout, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(error.into())),
            Err(_) => {
                self.task.end();
                Err(Failure::silent(&self.address, self.answer_timeout))
            }
        }
    }

    pub(super) fn failed(&self, error: Error) -> Failure {
        if matches!(
            error,
            Error::ConnectionLoss
                | Error::ClientClosed
                | Error::SessionExpired
                | Error::SessionMoved
                | Error::Timeout
                | Error::UnexpectedError(_)
                | Error::UnmarshalError { .. }
                | Error::Custom(_)
        ) {
            self.task.end();
        }
        Failure::new(&self.address, error)
    }

    pub(super) fn unexpected(&self, answer: Option<MultiReadResult>) -> Failure {
        match answer {
            Some(MultiReadResult::Error { err }) => self.failed(err),
            _ => Failure::unavailable(&self.address, "the answer is not one of ZooKeeper's"),
        }
    }

    pub(super) fn transact<F>(
        &self,
        fill: F,
    ) -> impl Future<Output = Result<(), Failure>> + use<'_, F>
    where
        F: FnOnce(&mut MultiWriter<'_>) -> Result<(), Error>,
    {
        let mut writer = self.client.new_multi_writer();
        let answer = fill(&mut writer).map(|()| writer.commit());
        async move {
            let answer = answer.map_err(|error| self.failed(error))?;
            self.answer(answer).await.map(drop)
        }
    }

    /// Checks that a node exists, by a transaction that changes nothing. It goes through a quorum, also
    /// if it fails. So this leader was still the leader.
    pub(super) async fn check(&self, path: &str) -> Result<(), Failure> {
        self.transact(|writer| writer.add_check_version(path, -1)).await
    }

    pub(super) fn is_usable(&self) -> bool {
        !*self.task.has_ended.borrow()
    }

    /// Waits until the connection is not usable any more. This keeps no connection open.
    pub(super) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut has_ended = self.task.has_ended.subscribe();
        async move {
            // A connection without a task has ended, too.
            let _ = has_ended.wait_for(|has_ended| *has_ended).await;
        }
    }

    /// Ends the connection, also for requests that still use it.
    pub(super) fn end(&self) {
        self.task.end();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.keeps_session {
            self.task.end();
        }
    }
}
