//! The memory for the heads of requests.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::HeaderMap,
    middleware::Next,
    response::Response,
};

use super::{problem::Problem, service::Service};
use crate::{committer::job::UnavailableOutcome, cut_offs::CutOff};

/// How many headers a request may have. HTTP/1 allows no more either.
const MAX_HEADERS: usize = 100;
/// What a head takes in memory beside its bytes: for itself, and for each header.
const HEAD_BYTES: usize = 1 << 10;
const HEADER_BYTES: usize = 128;

/// Takes memory for the head of a request until its operation is decided. A client may send many heads,
/// and none of their bodies.
pub(super) async fn take_memory(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if request.headers().len() > MAX_HEADERS {
        service.cut_offs.count(CutOff::HeadTooLarge);
        return Err(Problem::head_too_large(MAX_HEADERS));
    }
    let bytes = bytes_in_memory(request.headers()) + request.uri().path().len();
    let Some(_memory) = service.budget.heads(bytes).try_take(bytes) else {
        service.cut_offs.count(CutOff::OverBudget);
        return Err(Problem::over_budget(UnavailableOutcome::None));
    };
    Ok(next.run(request).await)
}

fn bytes_in_memory(headers: &HeaderMap) -> usize {
    let headers = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.as_bytes().len() + HEADER_BYTES);
    HEAD_BYTES + headers.sum::<usize>()
}
