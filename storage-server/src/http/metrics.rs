//! `/metrics`.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
    routing::get,
};

use super::{observe::OperatorAction, problem::Problem, service::Service};
use crate::{
    access::{Caller, identity::Permission},
    metrics::{Sample, text_format::TextFormat},
};

pub(super) fn routes_for_all() -> Router<Arc<Service>> {
    Router::new().route("/metrics", get(show))
}

pub(super) fn routes_for_operators() -> Router<Arc<Service>> {
    Router::new().route("/metrics", get(show_to_operators))
}

async fn show_to_operators(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !caller.operates() {
        return Err(Problem::forbidden(&caller, Permission::Operate, "/metrics"));
    }
    let mut response = show(State(service), headers).await;
    response.extensions_mut().insert(OperatorAction);
    Ok(response)
}

async fn show(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let is_database_up =
        service.queue.recent_failure().is_none() && service.prober.probe().await.is_ok();
    let text = service.metrics.encode(&Sample {
        queued_operations: service.queue.depth(),
        oldest_operation: service.queue.oldest_waited(),
        budget: &service.budget,
        is_database_up,
        is_auth_file_valid: service.config.access.fault().is_none(),
        tls: service.config.tls.as_ref(),
    });
    let format = TextFormat::from_headers(&headers);
    ([(header::CONTENT_TYPE, format.content_type())], format.translate(text)).into_response()
}
