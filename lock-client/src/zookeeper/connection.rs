//! A connection to one member, which belongs to one session.

use std::time::Duration;

use futures_util::FutureExt;
use tokio::{select, sync::watch, time::timeout};
use zookeeper_client::{Client, Error, SessionState, StateWatcher};

use super::failure::Failure;

/// A connection to one member.
///
/// The client underneath connects anew by itself when the connection is cut. Then this value is at its
/// end: the member may have other limits now, and only a connection that is made for it proves the time
/// of a session.
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
}

impl Connection {
    pub(super) fn new(
        client: Client,
        member: usize,
        address: String,
        answer_timeout: Duration,
    ) -> Self {
        let states = client.state_watcher();
        Self { client, member, address, answer_timeout, states, has_failed: watch::Sender::new(false) }
    }

    /// Waits for the answer to a request, which is sent before this is called.
    pub(super) async fn answer<T, E: Into<Error>>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match timeout(self.answer_timeout, answer).await {
            Ok(answer) => answer.map_err(|error| self.failed(error.into())),
            Err(_) => {
                self.has_failed.send_replace(true);
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
            self.has_failed.send_replace(true);
        }
        Failure::new(&self.address, error)
    }

    /// Reports an answer of another kind.
    pub(super) fn unexpected(&self, answer: Option<zookeeper_client::MultiReadResult>) -> Failure {
        match answer {
            Some(zookeeper_client::MultiReadResult::Error { err }) => self.failed(err),
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

    /// Whether the connection still is the one that was made.
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
