//! The body of an answer, whose client may read it slowly.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::activity::InFlight;

/// How many bytes of an answer hyper takes at once. It holds about two of such parts.
const PART_BYTES: usize = 16 << 10;

/// The body of an answer, handed over in small parts. hyper asks for a part when the client can
/// receive it: that is the progress of its request.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    /// What is left of the body's last frame.
    rest: Bytes,
    in_flight: InFlight,
}

impl Answer {
    pub(super) fn new(body: Body, in_flight: InFlight) -> Self {
        in_flight.note_progress();
        Self { body, rest: Bytes::new(), in_flight }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.in_flight.note_progress();
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Ready(end_or_error) => return Poll::Ready(end_or_error),
                Poll::Pending => return Poll::Pending,
            }
        }
        let part = PART_BYTES.min(self.rest.len());
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
