//! A connection to one member, which belongs to one session.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, OnceLock},
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use spawns_core::{Spawn, Task};
use tokio::{select, sync::watch, task::AbortHandle, time::timeout};
use zookeeper_client::{Client, Connector, Error, MultiReadResult, SessionState, StateWatcher};

use super::failure::Failure;

/// A connection to one member.
///
/// The client underneath would connect anew by itself when its connection is cut. Nobody would check
/// then that the member still has sessions of this time, and a connection that was left would take the
/// session back. So the client's task ends here with its first connection.
pub(super) struct Connection {
    pub(super) client: Client,
    /// The number of the member.
    pub(super) member: usize,
    address: String,
    answer_timeout: Duration,
    /// The states of the session after the connection was made.
    states: StateWatcher,
    /// Whether a request failed, or was not answered in time.
    has_failed: watch::Sender<bool>,
    task: ConnectionTask,
    /// Whether the session goes on without the connection.
    keeps_session: bool,
}

/// The task of a client, which ends when its connection is cut.
#[derive(Clone, Default)]
struct ConnectionTask {
    handle: Arc<Mutex<Option<AbortHandle>>>,
    states: Arc<OnceLock<StateWatcher>>,
}

impl Spawn for ConnectionTask {
    fn spawn(&self, task: Task) {
        let states = self.states.clone();
        let mut task = Box::into_pin(task.future);
        let until_cut = poll_fn(move |context| {
            let is_cut = || {
                states
                    .get()
                    .is_some_and(|states| states.peek_state() != SessionState::SyncConnected)
            };
            match task.as_mut().poll(context) {
                // The next poll would connect anew.
                Poll::Pending if !is_cut() => Poll::Pending,
                _ => Poll::Ready(()),
            }
        });
        *self.handle() = Some(tokio::spawn(until_cut).abort_handle());
    }
}

impl ConnectionTask {
    fn handle(&self) -> std::sync::MutexGuard<'_, Option<AbortHandle>> {
        self.handle.lock().expect("nothing panics while it holds this")
    }

    fn abort(&self) {
        if let Some(handle) = &*self.handle() {
            handle.abort();
        }
    }
}

impl Connection {
    /// Connects to a member.
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
        let states = client.state_watcher();
        // From here on, the task sees that its connection is cut.
        task.states.get_or_init(|| states.clone());
        let has_failed = watch::Sender::new(client.state() != SessionState::SyncConnected);
        Ok(Self {
            client,
            member,
            address,
            answer_timeout,
            states,
            has_failed,
            task,
            keeps_session,
        })
    }

    /// Ends the connection.
    fn fail(&self) {
        self.has_failed.send_replace(true);
        self.task.abort();
    }

    /// Waits for the answer to a request, which is sent before this is called.
    pub(super) async fn answer<T, E: Into<Error>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match timeout(self.answer_timeout, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(error.into())),
            Err(_) => {
                self.fail();
                let millis = self.answer_timeout.as_millis();
                Err(Failure::unavailable(&self.address, &format!("no answer within {millis} ms")))
            }
        }
    }

    /// Converts the error of an answer.
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
            self.fail();
        }
        Failure::new(&self.address, error)
    }

    /// Reports an answer of another kind.
    pub(super) fn unexpected(&self, answer: Option<MultiReadResult>) -> Failure {
        match answer {
            Some(MultiReadResult::Error { err }) => self.failed(err),
            _ => Failure::unavailable(&self.address, "the answer is not one of ZooKeeper's"),
        }
    }

    /// Checks that a node exists, by a transaction that changes nothing. It goes through a quorum. So the
    /// leader that has set the session's full time was still the leader. A leader that is elected later
    /// gives it its full time again. The request is sent at once.
    pub(super) fn check(&self, path: &str) -> impl Future<Output = Result<(), Failure>> + use<'_> {
        let mut writer = self.client.new_multi_writer();
        let added = writer.add_check_version(path, -1);
        let answer = writer.commit();
        async move {
            added.map_err(|error| self.failed(error))?;
            self.answer(answer).await.map(drop)
        }
    }

    /// Whether the connection was neither cut, nor failed.
    pub(super) fn is_usable(&self) -> bool {
        let is_unchanged = self.states.clone().changed().now_or_never().is_none();
        let is_connected = self.states.peek_state() == SessionState::SyncConnected;
        is_unchanged && is_connected && !*self.has_failed.borrow()
    }

    /// Whether the connection was cut, or its session has ended.
    pub(super) fn is_cut(&self) -> bool {
        self.states.clone().changed().now_or_never().is_some()
    }

    /// Waits until the connection is not usable any more.
    pub(super) async fn ended(&self) {
        let (mut states, mut has_failed) = (self.states.clone(), self.has_failed.subscribe());
        select! {
            _ = states.changed() => {}
            // The sender lives as long as this value.
            _ = has_failed.wait_for(|has_failed| *has_failed) => {}
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.keeps_session {
            self.task.abort();
        }
    }
}
