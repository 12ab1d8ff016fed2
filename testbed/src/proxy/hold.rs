//! Requests that a proxy holds back.

use std::time::Duration;

use anyhow::Context;
use tokio::{sync::oneshot, time::timeout};

use super::{message::Framing, upstream::Upstream};

const PATIENCE: Duration = Duration::from_secs(20);

/// Holds back the next request of its kind. If this is dropped before that request comes, the
/// request will be lost.
#[derive(Debug)]
#[must_use = "if it is dropped, the request is lost"]
pub struct Hold {
    request: oneshot::Receiver<HeldRequest>,
}

/// A request that is held back. Its client waits for the reply, and nothing passes on its
/// connection.
#[derive(Debug)]
#[must_use = "if it is dropped, the request is lost"]
pub struct HeldRequest {
    late: LateRequest,
    delivered: oneshot::Sender<()>,
}

/// A request whose client was cut off before the request reached the server.
#[derive(Debug)]
#[must_use = "if it is dropped, the request is lost"]
pub struct LateRequest {
    request: Vec<u8>,
    upstream: Upstream,
    framing: Framing,
}

impl Hold {
    pub(super) fn new() -> (oneshot::Sender<HeldRequest>, Self) {
        let (holder, request) = oneshot::channel();
        (holder, Self { request })
    }

    /// Waits until the request has come.
    ///
    /// # Errors
    /// If it has not come within 20 seconds.
    pub async fn caught(self) -> anyhow::Result<HeldRequest> {
        let caught = timeout(PATIENCE, self.request).await;
        Ok(caught.context("the request to hold back has not come")??)
    }
}

impl HeldRequest {
    /// Makes one. The receiver is notified when the request is delivered, and fails if it is cut
    /// off or dropped.
    pub(super) fn new(
        request: Vec<u8>,
        upstream: Upstream,
        framing: Framing,
    ) -> (Self, oneshot::Receiver<()>) {
        let (delivered, is_delivered) = oneshot::channel();
        (Self { late: LateRequest { request, upstream, framing }, delivered }, is_delivered)
    }

    /// Delivers the request, and lets its connection go on.
    pub fn deliver(self) {
        // The connection may have ended with the proxy.
        let _ = self.delivered.send(());
    }

    /// Cuts off the client, which doesn't learn the outcome of its request.
    pub fn cut(self) -> LateRequest {
        self.late
    }
}

impl LateRequest {
    /// Delivers the request after all, once more at each call, over a connection of its own, and
    /// returns the server's answer.
    ///
    /// # Errors
    /// If the server does not answer within 20 seconds.
    pub async fn deliver(&self) -> anyhow::Result<String> {
        let answer = self.upstream.execute(self.request.clone(), self.framing);
        let answer = timeout(PATIENCE, answer).await.context("the server did not answer")??;
        let answer = answer.context("the server closed the connection")?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
