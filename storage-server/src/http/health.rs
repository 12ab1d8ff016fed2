//! `/livez` and `/readyz`.

use std::sync::Arc;

use axum::{Router, extract::State, routing::get};

use super::{problem::Problem, service::Service};

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/livez", get(alive)).route("/readyz", get(ready))
}

async fn alive() -> &'static str {
    "alive\n"
}

/// The server is ready if its database answers.
async fn ready(State(service): State<Arc<Service>>) -> Result<&'static str, Problem> {
    service.store.ping().await.map_err(|error| service.unreachable(&error))?;
    Ok("ready\n")
}
