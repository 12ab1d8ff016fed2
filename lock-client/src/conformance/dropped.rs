//! A request that its caller drops half way.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// A future that is dropped if it has not ended after so many polls.
pub(super) struct Dropped<F> {
    pub(super) future: F,
    /// At least 1.
    pub(super) polls: usize,
}

impl<F: Future + Unpin> Future for Dropped<F> {
    /// `None` if the future did not end in time.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls -= 1;
        match Pin::new(&mut self.future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
