//! The record of each request: its id, its metrics, its line in the access log.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    body::HttpBody,
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode},
    middleware::Next,
    response::Response,
};
use tracing::{Instrument, Span};

use super::{
    problem::{Slug, beginning},
    request::Name,
    request_id::{RequestId, X_REQUEST_ID, trace_id},
    service::Service,
    terraform,
};
use crate::{
    access::Caller,
    audit::{Event, Line},
    connections::client_address,
};

/// How much of a path the access log has. Its lines wait in memory if nobody reads them.
const MAX_LOGGED_BYTES: usize = 1 << 10;
/// How much of a path is kept until its request has ended, which may wait for the rest of a body. A path that is
/// longer has no valid name, nor has its beginning.
const MAX_KEPT_BYTES: usize = 2 << 10;

/// Counts the request in the metrics, and writes its lines of the access log and the audit log. All
/// lines that are logged for it have its id, and so has the answer.
pub(super) async fn observe(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::from_headers(request.headers());
    let trace_id = trace_id(request.headers());
    // As text, it stands in quotes: an id of a client can't look like another field.
    let span = tracing::error_span!("request", request_id = id.as_str(), trace_id);
    let mut observed = Observed::new(service, &request, id, span.clone());
    request.extensions_mut().insert(observed.progress.clone());
    let mut response = next.run(request).instrument(span).await;
    observed.answered = Some(Answered {
        status: response.status(),
        bytes_out: response.body().size_hint().exact(),
    });
    response.headers_mut().insert(X_REQUEST_ID.clone(), observed.id.header());
    response
}

/// In the extensions of an answer: only operators may do what was requested, and it was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct OperatorAction;

/// In the extensions of a request: what is known of it, although its client may leave before the answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    caller: OnceLock<Caller>,
    decision: OnceLock<Decision>,
}

/// What a handler or a layer has decided. The server may still read the rest of the body.
#[derive(Clone, Copy, Debug)]
struct Decision {
    status: StatusCode,
    problem: Option<&'static str>,
    is_operator_action: bool,
}

impl Progress {
    pub(super) fn set_caller(&self, caller: Caller) {
        // A later one is the same.
        let _ = self.0.caller.set(caller);
    }

    pub(super) fn set_decision(&self, response: &Response) {
        let extensions = response.extensions();
        let _ = self.0.decision.set(Decision {
            status: response.status(),
            problem: extensions.get().map(|Slug(slug)| *slug),
            is_operator_action: extensions.get::<OperatorAction>().is_some(),
        });
    }

    fn identity_name(&self) -> Option<String> {
        self.0.caller.get().and_then(Caller::identity_name)
    }
}

/// A request, which is noted when this is dropped: also if its client gives it up.
struct Observed {
    service: Arc<Service>,
    id: RequestId,
    span: Span,
    begun: Instant,
    client: IpAddr,
    method: &'static str,
    route: String,
    path: String,
    /// The bytes of the body, if the client has declared them.
    bytes_in: Option<u64>,
    progress: Progress,
    /// `None` until there is an answer.
    answered: Option<Answered>,
}

struct Answered {
    status: StatusCode,
    bytes_out: Option<u64>,
}

impl Observed {
    fn new(service: Arc<Service>, request: &Request, id: RequestId, span: Span) -> Self {
        let matched = request.extensions().get().map_or("other", MatchedPath::as_str);
        Self {
            service,
            id,
            span,
            begun: Instant::now(),
            client: client_address(request.extensions()),
            method: known_method(request.method()),
            route: matched.replace("{*", "{"),
            path: beginning(request.uri().path(), MAX_KEPT_BYTES).to_owned(),
            bytes_in: request.body().size_hint().exact(),
            progress: Progress::default(),
            answered: None,
        }
    }

    /// Records a request that was rejected, that only operators may send, or whose client left before its
    /// decision. A 404 rejects nothing. After a 5xx, the request may have taken effect.
    fn audit(&self) {
        let identity = self.progress.identity_name();
        let decision = self.progress.0.decision.get();
        let event = match decision {
            Some(Decision { status, .. })
                if status.is_client_error() && *status != StatusCode::NOT_FOUND =>
            {
                Event::Rejection
            }
            Some(Decision { is_operator_action: true, .. }) if identity.is_some() => {
                Event::Operation
            }
            None if self.route.starts_with("/v1/") => Event::Abandoned,
            _ => return,
        };
        let has_name = self.route.ends_with("{name}");
        let name = has_name.then(|| Name::from_path(&self.path).ok()).flatten();
        let line = Line {
            event,
            identity,
            method: Some(self.method),
            route: Some(&self.route),
            resource: name.as_ref().map(|Name(name)| name.as_str()),
            status: decision.map(|decision| decision.status.as_u16()),
            problem: decision.and_then(|decision| decision.problem),
            request_id: Some(self.id.as_str()),
            ..Line::default()
        };
        self.service.audit.record(self.client, line);
    }

    fn log_access(&self, status: &str, problem: Option<&str>) {
        tracing::info!(
            target: "access",
            client = %self.client,
            identity = self.progress.identity_name(),
            method = self.method,
            path = beginning(&self.path, MAX_LOGGED_BYTES),
            route = self.route,
            status,
            problem,
            bytes_in = self.bytes_in,
            bytes_out = self.answered.as_ref().and_then(|answered| answered.bytes_out),
            duration_ms = self.begun.elapsed().as_micros() as f64 / 1000.0,
        );
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let status = self.answered.as_ref().map_or("abandoned", |it| it.status.as_str());
        let problem = self.progress.0.decision.get().and_then(|decision| decision.problem);
        let metrics = &self.service.metrics;
        metrics.note_request(self.method, &self.route, status, problem, self.begun.elapsed());
        let _in_span = self.span.enter();
        self.audit();
        if self.service.config.access_log {
            self.log_access(status, problem);
        }
    }
}

/// The method, or `other`: clients can make up any number of methods.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => terraform::known_method(method).unwrap_or("other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_path_is_cut_at_a_whole_character() {
        assert_eq!(beginning("/short", MAX_LOGGED_BYTES), "/short");
        let long = format!("/{}", "ü".repeat(MAX_LOGGED_BYTES));
        assert_eq!(beginning(&long, MAX_LOGGED_BYTES).len(), MAX_LOGGED_BYTES - 1);
    }

    /// The audit log would have the name of another resource.
    #[test]
    fn path_that_is_too_long_to_be_kept_has_no_name() {
        let with = |name: String| format!("/v1/resources/{name}");
        assert!(Name::from_path(&with("%78".repeat(512))).is_ok());
        for name in ["x".repeat(4096), "%78".repeat(4096), "%c3%bc".repeat(4096)] {
            let path = with(name);
            assert!(Name::from_path(&path).is_err());
            assert!(Name::from_path(beginning(&path, MAX_KEPT_BYTES)).is_err());
        }
    }
}
