//! `/livez` and `/readyz`.

use std::{sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, routing::get};
use serde::Serialize;

use super::{problem::Problem, service::Service};

/// An operation that has waited for longer shows that the server can't write.
const LONGEST_WAIT: Duration = Duration::from_secs(15);

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/livez", get(alive)).route("/readyz", get(ready))
}

async fn alive() -> &'static str {
    "alive\n"
}

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    /// How long the oldest queued operation has waited; 0 if none is queued.
    oldest_operation_ms: u64,
}

/// The server is ready if no operation waits for too long, the last commit did not fail, and the
/// database takes a write.
async fn ready(State(service): State<Arc<Service>>) -> Result<Json<Ready>, Problem> {
    let waited = service.queue.oldest_waited();
    let oldest_operation_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    let probed = if waited > LONGEST_WAIT {
        Err("the operations that were queued first have waited for too long".to_owned())
    } else if let Some(reason) = service.queue.recent_failure() {
        Err(reason)
    } else {
        service.prober.probe().await
    };
    match probed {
        Ok(()) => Ok(Json(Ready { status: "ready", oldest_operation_ms })),
        Err(reason) => {
            Err(Problem::not_ready(reason).with("oldest_operation_ms", oldest_operation_ms))
        }
    }
}
