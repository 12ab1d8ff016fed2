//! What is noted of each request.

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{Method, StatusCode},
    middleware::Next,
    response::Response,
};

use super::{problem::Slug, service::Service};

/// Counts the request in the metrics.
pub(super) async fn observe(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Response {
    let mut observed = Observed::new(service, &request);
    let response = next.run(request).await;
    observed.status = Some(response.status());
    observed.problem = response.extensions().get().map(|Slug(slug)| *slug);
    response
}

/// A request, which is noted when this is dropped: also if its client gives it up.
struct Observed {
    service: Arc<Service>,
    begun: Instant,
    method: &'static str,
    route: String,
    /// `None` until there is an answer.
    status: Option<StatusCode>,
    problem: Option<&'static str>,
}

impl Observed {
    fn new(service: Arc<Service>, request: &Request) -> Self {
        let path = request.extensions().get().map_or("other", MatchedPath::as_str);
        Self {
            service,
            begun: Instant::now(),
            method: known_method(request.method()),
            route: path.replace("{*", "{"),
            status: None,
            problem: None,
        }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let Self { service, begun, method, route, status, problem } = self;
        let status = status.as_ref().map_or("abandoned", StatusCode::as_str);
        service.metrics.note_request(method, route, status, *problem, begun.elapsed());
    }
}

/// The method, or `other`: clients can make up any number of methods.
fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
