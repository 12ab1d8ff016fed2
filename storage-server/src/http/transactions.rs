//! `/v1/transactions`: writes of several resources that take effect together or not at all.

mod answer;
pub(super) mod requested;

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Extension, Router, body::Body, extract::State, http::HeaderMap, response::Response,
    routing::post,
};

use self::{
    answer::{answer, max_answer_bytes},
    requested::parse,
};
use super::{
    body, body_digest,
    problem::Problem,
    request::{require_json, require_no_encoding},
    service::Service,
};
use crate::{access::Caller, committer::job::UnavailableOutcome};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/transactions", post(commit))
}

async fn commit(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    require_json(&headers)?;
    require_no_encoding(&headers)?;
    let (body, memory) = body::read_with_memory(body, &service).await?;
    body_digest::require_match(&headers, &body)?;
    let transaction = Arc::new(parse(body, memory, &caller, &service)?);
    if !service.store.has_transactions() {
        let resources: BTreeSet<_> = transaction.resources().collect();
        if resources.len() > 1 {
            return Err(Problem::no_transactions());
        }
    }
    // After the commit, a lack of memory would leave the client without an answer.
    let memory =
        service.memory_for_answer(max_answer_bytes(&transaction), UnavailableOutcome::None)?;
    let decided = service.decide_transaction(transaction.clone()).await?;
    answer(&transaction, &decided, memory)
}
