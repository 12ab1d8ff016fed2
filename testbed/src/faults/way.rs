//! One direction of a connection, in which messages are held back and don't overtake each other.

use std::{collections::VecDeque, future::pending, time::Duration};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    time::{Instant, sleep_until},
};

pub(super) struct Way<W> {
    to: W,
    waiting: VecDeque<(Instant, Vec<u8>)>,
}

impl<W: AsyncWrite + Unpin> Way<W> {
    pub(super) fn to(to: W) -> Self {
        Self { to, waiting: VecDeque::new() }
    }

    pub(super) fn push(&mut self, message: Vec<u8>, wait: Duration) {
        let due = Instant::now() + wait;
        let due = self.waiting.back().map_or(due, |(before, _)| due.max(*before));
        self.waiting.push_back((due, message));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits until a message is to be sent.
    pub(super) async fn due(&self) {
        match self.waiting.front() {
            // To sleep takes a millisecond at least.
            Some((due, _)) if *due <= Instant::now() => {}
            Some((due, _)) => sleep_until(*due).await,
            None => pending().await,
        }
    }

    /// Sends the first message. If its receiver has gone, nothing says so: what comes from there ends.
    pub(super) async fn send(&mut self) {
        if let Some((_, message)) = self.waiting.pop_front() {
            let _ = self.to.write_all(&message).await;
        }
    }
}
