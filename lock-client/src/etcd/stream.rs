//! Requests whose answer is a stream of messages.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

use super::{
    connection::{Connection, encoded, message},
    failure::Failure,
    http::whole,
};
use crate::backend::BackendError;

pub(super) struct Stream {
    body: Incoming,
    current: watch::Receiver<usize>,
    /// What was read, and is not a whole line yet.
    read: Vec<u8>,
}

impl Stream {
    /// Returns the next message; `None` at the end of the stream.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            tokio::select! {
                frame = self.body.frame() => {
                    self.read.extend(frame?.ok()?.into_data().unwrap_or_default());
                }
                _ = self.current.changed() => return None,
            }
        }
    }
}

impl Connection {
    /// Sends a request whose answer is a stream, over a connection of its own. It ends when etcd ends
    /// it, or when requests go to another member. Returns once the answer begins, which confirms the
    /// stream. Another request came before, and has logged in.
    pub(super) async fn stream(
        &self,
        method: &str,
        request: &impl Serialize,
    ) -> Result<Stream, Failure> {
        let mut current = self.current.subscribe();
        let member = &self.server().members[*current.borrow_and_update()];
        let opening = async {
            let token = self.login.token(None);
            let message = message(member, method, encoded(request), token.as_deref())?;
            let response = self.http().open(member, message).await?;
            if response.status().is_success() {
                return Ok(response.into_body());
            }
            let (status, body) = whole(member, response).await?;
            Err(Failure::from_answer(member, status, &body))
        };
        let body = self.in_time(member, opening).await.inspect_err(|failure| {
            if let Failure::NotSent(_) | Failure::Other(BackendError::Unavailable(_)) = failure {
                self.leave(member);
            }
        })?;
        Ok(Stream { body, current, read: Vec::new() })
    }
}
