//! Bytes that become messages, and messages that wait to be sent.

use std::{collections::VecDeque, future::pending, io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, sleep_until},
};

use super::resp;

/// How much is read at once.
const CHUNK: usize = 1 << 16;

/// How a proxy divides a stream of bytes into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The bytes that arrive at once are a message. This fits every protocol, but a large message
    /// may arrive in parts, and small ones together. What the server sends first after some
    /// requests counts as the reply to all of them.
    Chunks,
    /// Messages of Redis' protocol, each whole. Every reply is matched to its request.
    Resp,
}

/// The messages that one end of a connection sends.
pub(super) struct Messages {
    from: Box<dyn AsyncRead + Send + Unpin>,
    framing: Framing,
    /// The bytes that were read, and are not a whole message yet.
    read: Vec<u8>,
}

/// The messages for one end of a connection. None overtakes another.
pub(super) struct Outbox {
    to: Box<dyn AsyncWrite + Send + Unpin>,
    waiting: VecDeque<(Instant, Vec<u8>)>,
}

impl Messages {
    pub(super) fn new(from: impl AsyncRead + Send + Unpin + 'static, framing: Framing) -> Self {
        Self { from: Box::new(from), framing, read: Vec::new() }
    }

    /// Returns the next message, or `None` if the connection has ended. Cancellation safe.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let length = match self.framing {
                Framing::Chunks => Some(self.read.len()).filter(|&length| length > 0),
                Framing::Resp => resp::length(&self.read),
            };
            if let Some(length) = length {
                return Some(self.read.drain(..length).collect());
            }
            self.read.reserve(CHUNK);
            if !matches!(self.from.read_buf(&mut self.read).await, Ok(1..)) {
                return None;
            }
        }
    }
}

impl Outbox {
    pub(super) fn new(to: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { to: Box::new(to), waiting: VecDeque::new() }
    }

    /// Adds a message, which is sent after this time, or after the messages before it.
    pub(super) fn push(&mut self, message: Vec<u8>, delay: Duration) {
        let due = Instant::now() + delay;
        let due = self.waiting.back().map_or(due, |(before, _)| due.max(*before));
        self.waiting.push_back((due, message));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends some bytes of the first message when it is due. Without a message, this never returns.
    /// Cancellation safe.
    pub(super) async fn send(&mut self) -> io::Result<()> {
        let Some((due, message)) = self.waiting.front_mut() else { return pending().await };
        // A sleep takes a millisecond at least.
        if *due > Instant::now() {
            sleep_until(*due).await;
        }
        let count = self.to.write(message).await?;
        message.drain(..count);
        if message.is_empty() {
            self.waiting.pop_front();
        }
        Ok(())
    }
    /// Sends all messages, each when it is due.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while !self.is_empty() {
            self.send().await?;
        }
        Ok(())
    }
}
