//! `/v1/transactions`: writes of several resources that take effect together or not at all.

mod answer;
pub(super) mod requested;

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, body::Body, http::HeaderMap, response::Response, routing::post};

use self::{
    answer::{answer, max_answer_bytes},
    requested::parse,
};
use super::{
    body, body_digest,
    problem::Problem,
    request::{require_json, require_no_encoding},
    service::Service,
    session::Session,
};
use crate::committer::job::UnavailableOutcome;

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/v1/transactions", post(commit))
}

async fn commit(session: Session, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    require_json(&headers)?;
    require_no_encoding(&headers)?;
    let (body, memory) = body::read_with_memory(body, &session).await?;
    body_digest::require_match(&headers, &body)?;
    let transaction = Arc::new(parse(body, memory, &session.caller, &session)?);
    if !session.store.has_transactions() {
        let resources: BTreeSet<_> = transaction.resources().collect();
        if resources.len() > 1 {
            return Err(Problem::no_transactions());
        }
    }
    // After the commit, a lack of memory would leave the client without an answer.
    let memory =
        session.memory_for_answer(max_answer_bytes(&transaction), UnavailableOutcome::None)?;
    let decided = session.decide_transaction(transaction.clone()).await?;
    answer(&transaction, &decided, memory)
}
