//! `/v1/fences/{name}`: the fence of a resource, and claims.

use std::sync::Arc;

use axum::{
    Json, Router,
    response::{IntoResponse, Response},
    routing::get,
};
use fence::{ResourceName, Token};
use serde::Serialize;

use super::{
    caller::{Claim, Read, Target},
    problem::Problem,
    request::{Fencing, RequiredFencing},
    resources::{Accepted, visible_holder},
    service::Service,
    session::Session,
    values::Freshness,
};
use crate::{
    operation::{Action, Outcome},
    store::WantedValue,
};

pub(super) fn routes() -> Router<Arc<Service>> {
    let methods = get(show).put(claim);
    Router::new().route("/v1/fences/{*name}", methods.clone()).route("/v1/fences/", methods)
}

#[derive(Serialize)]
struct ShownFence {
    resource: ResourceName,
    token: Token,
    holder: String,
    version: u64,
}

async fn show(
    session: Session,
    Target { resource, .. }: Target<Read>,
    fencing: Fencing,
) -> Result<Json<ShownFence>, Problem> {
    let row = session.load(&resource, WantedValue::Description, Freshness::Visible).await?;
    let token = row.highest_token().ok_or_else(|| Problem::no_fence(&resource))?;
    // Nobody holds a common fence. It looks like a holder that is never shown.
    let holder = row.holder().map_or("...".to_owned(), |it| visible_holder(it, &fencing.holder));
    Ok(Json(ShownFence { resource, token, holder, version: row.version }))
}

async fn claim(
    session: Session,
    Target { resource, ceiling, .. }: Target<Claim>,
    RequiredFencing(fencing): RequiredFencing,
) -> Result<Response, Problem> {
    match session.decide(fencing.operation(&resource, ceiling, Action::Claim)).await? {
        Outcome::Claimed { version } => {
            Ok(Accepted::new(&resource, &fencing, version).into_response())
        }
        other => unreachable!("{other:?} is not the outcome of a claim"),
    }
}
