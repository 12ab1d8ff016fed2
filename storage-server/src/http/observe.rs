//! The record of each request: its id, its metrics, its line in the access log.

use std::{net::IpAddr, sync::Arc, time::Instant};

use axum::{
    body::HttpBody,
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode, Uri},
    middleware::Next,
    response::Response,
};
use tracing::{Instrument, Span};

use super::{
    problem::Slug,
    request::Name,
    request_id::{RequestId, X_REQUEST_ID, trace_id},
    service::Service,
};
use crate::{
    access::Caller,
    audit::{Audited, Event},
    connections::client_address,
};

/// Counts the request in the metrics, and writes its line of the access log. All lines that are logged
/// for it have its id, and so has the answer.
pub(super) async fn observe(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::from_headers(request.headers());
    let trace_id = trace_id(request.headers());
    let span = tracing::error_span!("request", request_id = %id, trace_id);
    let mut observed = Observed::new(service, &request, span.clone());
    let (client, uri) = (client_address(request.extensions()), request.uri().clone());
    let mut response = next.run(request).instrument(span).await;
    observed.note(&response);
    observed.audit(&response, client, &uri, &id);
    response.headers_mut().insert(X_REQUEST_ID.clone(), id.header());
    response
}

/// In the extensions of an answer: only operators may do what was requested, and it was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation;

/// A request, which is noted when this is dropped: also if its client gives it up.
struct Observed {
    service: Arc<Service>,
    span: Span,
    begun: Instant,
    method: &'static str,
    route: String,
    /// `None` without an access log.
    logged: Option<Logged>,
    /// `None` until there is an answer.
    status: Option<StatusCode>,
    problem: Option<&'static str>,
}

/// What only the access log has.
struct Logged {
    path: String,
    client: IpAddr,
    /// The bytes of the body, if the client has declared them.
    bytes_in: Option<u64>,
    bytes_out: Option<u64>,
    identity: Option<String>,
}

impl Observed {
    fn new(service: Arc<Service>, request: &Request, span: Span) -> Self {
        let matched = request.extensions().get().map_or("other", MatchedPath::as_str);
        let logged = service.config.access_log.then(|| Logged {
            path: request.uri().path().to_owned(),
            client: client_address(request.extensions()),
            bytes_in: request.body().size_hint().exact(),
            bytes_out: None,
            identity: None,
        });
        Self {
            service,
            span,
            begun: Instant::now(),
            method: known_method(request.method()),
            route: matched.replace("{*", "{"),
            logged,
            status: None,
            problem: None,
        }
    }

    fn note(&mut self, response: &Response) {
        self.status = Some(response.status());
        self.problem = response.extensions().get().map(|Slug(slug)| *slug);
        if let Some(logged) = &mut self.logged {
            logged.bytes_out = response.body().size_hint().exact();
            logged.identity = response.extensions().get().and_then(Caller::identity_name);
        }
    }
}

impl Observed {
    /// Records a request that was refused, or that only operators may send. A 404
    /// refuses nothing. After a 5xx, the request may have taken effect.
    fn audit(&self, response: &Response, client: IpAddr, uri: &Uri, id: &RequestId) {
        let (status, extensions) = (response.status(), response.extensions());
        let identity = extensions.get().and_then(Caller::identity_name);
        let event = if status.is_client_error() && status != StatusCode::NOT_FOUND {
            Event::Refusal
        } else if extensions.get::<Operation>().is_some() && identity.is_some() {
            Event::Operation
        } else {
            return;
        };
        let has_name = self.route.ends_with("{name}");
        let name = has_name.then(|| Name::from_path(uri.path()).ok()).flatten();
        let _in_span = self.span.enter();
        self.service.audit.record(&Audited {
            event,
            identity,
            client,
            method: self.method,
            route: &self.route,
            resource: name.as_ref().map(|Name(name)| name.as_str()),
            status: status.as_u16(),
            problem: self.problem,
            request_id: id.as_str(),
        });
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let Self { service, span, begun, method, route, logged, status, problem } = self;
        let duration = begun.elapsed();
        let status = status.as_ref().map_or("abandoned", StatusCode::as_str);
        service.metrics.note_request(method, route, status, *problem, duration);
        if let Some(Logged { path, client, bytes_in, bytes_out, identity }) = logged {
            let duration_ms = duration.as_micros() as f64 / 1000.0;
            span.in_scope(|| {
                tracing::info!(
                    target: "access",
                    %client,
                    identity,
                    method,
                    path,
                    route,
                    status,
                    problem,
                    bytes_in,
                    bytes_out,
                    duration_ms,
                );
            });
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
        _ => "other",
    }
}
