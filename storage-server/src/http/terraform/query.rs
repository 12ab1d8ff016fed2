//! The query of a request for a state.

use std::time::Duration;

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use fence::Holder;
use serde::Deserialize;

use crate::{config::parse_ttl, http::problem::Problem};

/// What the address of a backend says, and what its client adds.
pub(super) struct StateQuery {
    /// The id of the client's lock.
    pub(super) id: Option<Holder>,
    /// How long a lock is held.
    pub(super) ttl: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    #[serde(rename = "ID")]
    id: Option<Holder>,
    ttl: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for StateQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(Parameters { id, ttl }) = Query::from_request_parts(parts, state)
            .await
            .map_err(|rejection| Problem::malformed_request(rejection.body_text()))?;
        if id.as_ref().is_some_and(Holder::is_empty) {
            return Err(Problem::malformed_request("the ID of the lock is empty"));
        }
        let ttl = ttl.map(|ttl| parse_ttl(&ttl)).transpose();
        Ok(Self { id, ttl: ttl.map_err(Problem::malformed_request)? })
    }
}
