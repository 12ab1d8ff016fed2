//! `/livez` and `/readyz`.

use std::{sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, http::request::Parts, routing::get};
use serde::Serialize;

use super::{caller::credentials, problem::Problem, service::Service};
use crate::{access::Credentials, tls::Tls};

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
    #[serde(flatten)]
    details: Option<Details>,
}

/// What only operators see.
#[derive(Serialize)]
struct Details {
    /// How long the oldest queued operation has waited; 0 if none is queued.
    oldest_operation_ms: u64,
    /// What is wrong with the auth file, whose identities from before stay valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_file: Option<String>,
    /// What is wrong with the files of TLS, of which those from before stay in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls_files: Option<String>,
}

/// The server is ready if it is not draining, no operation waits for too long, the last commit did not
/// fail, and the database takes a write. It stays ready with a broken auth file or certificate: its
/// clients are served as before, and all servers may have the same files.
async fn ready(State(service): State<Arc<Service>>, head: Parts) -> Result<Json<Ready>, Problem> {
    let caller = service.identify(&head.headers, &head.extensions);
    // Clients need no identity here, but nobody may try tokens unseen.
    if caller.is_none()
        && !matches!(credentials(&head.headers, &head.extensions), Credentials::None)
    {
        service.admit(None, &head.extensions)?;
        return Err(Problem::unauthenticated());
    }
    let shows_details = caller.is_some_and(|caller| caller.operates());
    let waited = service.queue.oldest_waited();
    let details = shows_details.then(|| Details {
        oldest_operation_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        auth_file: service.config.access.fault(),
        tls_files: service.config.tls.as_ref().and_then(Tls::fault),
    });
    let probed = if service.draining.is_cancelled() {
        Err("the server is draining".to_owned())
    } else if waited > LONGEST_WAIT {
        Err("the operations that were queued first have waited for too long".to_owned())
    } else if let Some(reason) = service.queue.recent_failure() {
        Err(reason)
    } else {
        service.prober.probe().await
    };
    match probed {
        Ok(()) => Ok(Json(Ready { status: "ready", details })),
        Err(reason) => Err(match details {
            None => Problem::nothing_done("the reason is shown to operators".to_owned()),
            Some(Details { oldest_operation_ms, auth_file, tls_files }) => {
                let faults = [("auth_file", auth_file), ("tls_files", tls_files)];
                let faults = faults.into_iter().filter_map(|(name, it)| Some((name, it?)));
                let problem = Problem::nothing_done(reason);
                let problem = problem.with("oldest_operation_ms", oldest_operation_ms);
                faults.fold(problem, |problem, (name, fault)| problem.with(name, fault))
            }
        }),
    }
}
