//! `/v1/events`: the server's decisions as they happen, as server-sent events.
//!
//! Source: section 9.2 of the HTML standard.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::stream::unfold;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    problem::Problem,
    request::{Repeated, single},
    service::Service,
};
use crate::{
    access::{Caller, Changes, identity::Permission},
    connections::{self, Endless},
    events::{EventId, Watcher},
};

const PATH: &str = "/v1/events";
/// How often a client gets a sign of life. By it, the server notices a client that has gone.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// How many clients may watch: this part of the connections, and at most so many. They are never idle, so
/// the server closes none of them for another client.
const PART_OF_CONNECTIONS: usize = 4;
const MAX_WATCHERS: usize = 1024;

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// nginx would hold events back until it has many of them.
pub(super) static X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route(PATH, get(watch))
}

async fn watch(State(service): State<Arc<Service>>, head: Parts) -> Result<Response, Problem> {
    // In this order, no change of permissions is missed.
    let changes = service.config.access.changes();
    let caller = service.identify(&head.headers, &head.extensions);
    let caller = caller.ok_or_else(Problem::unauthenticated)?;
    if !caller.may_on_some(Permission::Read) {
        return Err(Problem::forbidden(&caller, Permission::Read, PATH));
    }
    let after = last_event_id(&head.headers)?;
    let max_connections = connections::allowed(service.config.max_connections);
    let max_watchers = (max_connections / PART_OF_CONNECTIONS).clamp(1, MAX_WATCHERS);
    let watcher = service.queue.events().watch(after, max_watchers);
    let watcher = watcher.ok_or_else(|| {
        Problem::nothing_done("as many clients watch the decisions as may".to_owned())
    })?;
    // All streams would wait for one mutex of the parent token.
    let draining = service.draining.child_token();
    let stream = Stream { watcher, caller, changes, draining };
    let body = unfold(Some(stream), async |stream: Option<Stream>| {
        let (text, stream) = stream?.next().await;
        Some((Ok::<_, Infallible>(text), stream))
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (X_ACCEL_BUFFERING.clone(), "no")];
    let mut response = (headers, Body::from_stream(body)).into_response();
    response.extensions_mut().insert(Endless);
    Ok(response)
}

/// The last event that the client has seen, if it has seen any.
fn last_event_id(headers: &HeaderMap) -> Result<Option<EventId>, Problem> {
    let malformed = || Problem::malformed_request("Last-Event-ID must be one id of an event");
    let id = single(headers, &LAST_EVENT_ID).map_err(|Repeated| malformed())?;
    let id = id.filter(|id| !id.is_empty()).map(|id| str::from_utf8(id).ok()?.parse().ok());
    id.map(|id| id.ok_or_else(malformed)).transpose()
}

/// A stream that has not ended.
struct Stream {
    watcher: Watcher,
    caller: Caller,
    /// Who may do what may change while a client watches.
    changes: Changes,
    draining: CancellationToken,
}

impl Stream {
    /// Waits for what is sent next, and returns it. After an end, nothing follows.
    async fn next(mut self) -> (Bytes, Option<Self>) {
        let text = tokio::select! {
            // Even while there is always an event, the end comes at once.
            biased;
            () = self.draining.cancelled() => return (end("stopping"), None),
            _ = self.changes.next() => return (end("access-changed"), None),
            text = self.watcher.next(&self.caller) => text,
            () = sleep(ALIVE_EVERY) => self.watcher.alive(),
        };
        (text, Some(self))
    }
}

/// The server ends the stream, and the client may connect again.
fn end(reason: &str) -> Bytes {
    format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n").into()
}
