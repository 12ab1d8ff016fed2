//! The body of each request: whole or an error, and read to its end before the answer.

use std::{
    mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{StatusCode, Version, header},
    middleware::Next,
    response::Response,
};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::{body, observe::Progress, service::Service};
use crate::connections::UnfinishedBody;

/// Reads what is left of a request's body before the request is answered.
///
/// The server closes a connection whose request it has not read, and a client that is still sending
/// would not see the answer. On HTTP/2, a connection ends once a client was too slow with the rest.
pub(super) async fn read_rest(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Response {
    let left = Left::default();
    let may_be_cut_off = request.version() == Version::HTTP_2;
    let asks_first = request.headers().contains_key(header::EXPECT);
    let progress = request.extensions().get::<Progress>().cloned();
    let request = request.map(|body| {
        let left = left.clone();
        Body::new(WholeBody { body, has_begun: false, has_ended: false, may_be_cut_off, left })
    });
    let mut response = next.run(request).await;
    // The client may leave before the rest has come.
    if let Some(progress) = progress {
        progress.set_decision(&response);
    }
    let left = left.lock().expect("no panic while it is held").take();
    let is_finished = match left {
        None => true,
        // A client that asks first sends no body after a rejection.
        Some(Rest { has_begun: false, .. }) if asks_first => true,
        // It is slow already.
        Some(_) if response.status() == StatusCode::REQUEST_TIMEOUT => false,
        Some(Rest { body, .. }) => body::discard(body, &service.budget).await,
    };
    if !is_finished {
        response.extensions_mut().insert(UnfinishedBody);
    }
    response
}

/// What a handler has left of a body.
type Left = Arc<Mutex<Option<Rest>>>;

struct Rest {
    body: Body,
    has_begun: bool,
}

/// A body that leaves its rest behind when it is dropped.
struct WholeBody {
    body: Body,
    has_begun: bool,
    has_ended: bool,
    may_be_cut_off: bool,
    left: Left,
}

/// The client has reset the stream of its request, with the code of a success.
#[derive(Debug, thiserror::Error)]
#[error("the client has cut it off")]
struct CutOff;

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.has_begun = true;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.has_ended = !matches!(frame, Some(Ok(_)));
        // hyper takes a reset without an error for the end of the body (hyper#3681).
        if frame.is_none() && self.may_be_cut_off && !self.body.is_end_stream() {
            return Poll::Ready(Some(Err(axum::Error::new(CutOff))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WholeBody {
    fn drop(&mut self) {
        if !self.has_ended && !self.body.is_end_stream() {
            let body = mem::take(&mut self.body);
            let rest = Rest { body, has_begun: self.has_begun };
            *self.left.lock().expect("no panic while it is held") = Some(rest);
        }
    }
}
