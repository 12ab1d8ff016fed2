//! `/v1/terraform/{name}`: states of Terraform and OpenTofu, in the protocol of their backend `http`.
//!
//! The client locks the state under a random id, reads it, uploads it with `?ID=` once or several times,
//! and unlocks it. It knows no tokens. So the server gives each id a token of its own, and writes a
//! state that is uploaded under the id with that token: the rule of the `fence` crate decides, as for any other resource.
//!
//! Source: `internal/backend/remote-state/http` of Terraform 1.11 and OpenTofu 1.10. They print nothing of
//! an error's body, except for the ID of the lock that is in the way.

mod lock;
mod locks;
mod query;
mod state;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{FromRequestParts, MatchedPath, Request, State},
    handler::Handler,
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
    routing::any,
};
use fence::{Holder, ResourceName, Token};
use serde::Serialize;

use self::{lock::LockInfo, locks::Locks, query::StateQuery};
use super::{
    caller::{Claim, Read, Target, Write},
    problem::Problem,
    request::{Written, require_json},
    resources::value_response,
    service::Service,
    session::Session,
    values::Freshness,
};
use crate::{
    config::Enforcement,
    operation::{Action, Condition, Outcome},
};

const PATH: &str = "/v1/terraform/{*name}";
const LOCK: &str = "LOCK";
const UNLOCK: &str = "UNLOCK";
/// What to do if a lock was sent as another request.
const DEFAULT_METHODS: &str = "To lock and unlock, leave lock_method and unlock_method of the backend at \
    their defaults, and unset TF_HTTP_LOCK_METHOD and TF_HTTP_UNLOCK_METHOD";
const METHODS: HeaderValue = HeaderValue::from_static("GET,HEAD,POST,DELETE,LOCK,UNLOCK");

pub(super) fn routes() -> Router<Arc<Service>> {
    let methods = any(lock_or_unlock).get(read).post(upload).delete(delete);
    Router::new().route(PATH, methods.clone()).route("/v1/terraform/", methods)
}

/// Whether a request is for a state, whose clients may send their bearer token as a password.
pub(super) fn is_route(path: Option<&MatchedPath>) -> bool {
    path.is_some_and(|path| path.as_str() == PATH)
}

/// The name of a method that only this protocol has.
pub(super) fn known_method(method: &Method) -> Option<&'static str> {
    [LOCK, UNLOCK].into_iter().find(|known| *known == method.as_str())
}

/// Passes requests on whose methods HTTP itself does not have.
async fn lock_or_unlock(State(service): State<Arc<Service>>, request: Request) -> Response {
    match known_method(request.method()) {
        Some(LOCK) => lock.call(request, service).await,
        Some(UNLOCK) => unlock.call(request, service).await,
        _ => {
            let problem = Problem::method_not_allowed(request.method(), request.uri().path());
            let mut response = problem.into_response();
            response.headers_mut().insert(header::ALLOW, METHODS);
            response
        }
    }
}

/// Reads the state. This claims nothing: the lock has claimed already. The run may upload what it makes of
/// this, so a primary that was cut off may not show an older state.
async fn read(
    session: Session,
    Target { resource, .. }: Target<Read>,
) -> Result<Response, Problem> {
    let row = session.load_value(&resource, Freshness::Durable, |_| true).await?;
    value_response(&session, &resource, row.version, row.value, &Holder::EMPTY)
}

/// The answer to a client that holds the lock now.
#[derive(Serialize)]
struct Locked {
    resource: ResourceName,
    token: Token,
    ttl_ms: u64,
}

/// Acquires the lock for the id in the body, or renews it if the id has it already.
async fn lock(
    session: Session,
    Written { head: (Target { resource, .. }, query), content }: Written<(
        Target<Claim>,
        StateQuery,
    )>,
) -> Result<Json<Locked>, Problem> {
    let info = LockInfo::parse(&content.bytes)?;
    let ttl = query.ttl.unwrap_or(session.config.terraform_ttl);
    let held = Locks::new(&session, &resource)?.acquire(info, ttl).await?;
    Ok(Json(Locked { token: held.fence.token, ttl_ms: held.ttl_ms(), resource }))
}

/// Releases the lock if it has the id in the body. The command `force-unlock` sends no body: it releases
/// any lock, unless the address has `?ID=`.
async fn unlock(
    session: Session,
    Written { head: (Target { resource, .. }, query), content }: Written<(
        Target<Claim>,
        StateQuery,
    )>,
) -> Result<StatusCode, Problem> {
    let info = (!content.bytes.is_empty()).then(|| LockInfo::parse(&content.bytes)).transpose()?;
    let ids: Vec<_> = info.map(|info| info.id).into_iter().chain(query.id).collect();
    Locks::new(&session, &resource)?.release(&ids).await?;
    Ok(StatusCode::OK)
}

/// Rejects a body that is not declared as JSON.
struct DeclaredAsJson;

impl<S: Sync> FromRequestParts<S> for DeclaredAsJson {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        require_json(&parts.headers).map(|()| Self)
    }
}

/// Writes the state under the token of the lock's id, and renews the lock.
async fn upload(
    session: Session,
    Written { head: (Target { resource, .. }, query, DeclaredAsJson), content }: Written<(
        Target<Write>,
        StateQuery,
        DeclaredAsJson,
    )>,
) -> Result<StatusCode, Problem> {
    state::require_state(&content.bytes)?;
    if query.id.is_none() && session.config.enforcement == Enforcement::Enforce {
        return Err(Problem::token_required("the ID of a lock, in the query of the address,"));
    }
    let action = Action::Write { content, condition: Condition::default() };
    match change(&session, &resource, query, action).await? {
        Outcome::Written { created: true, .. } => Ok(StatusCode::CREATED),
        Outcome::Written { created: false, .. } => Ok(StatusCode::OK),
        other => unreachable!("{other:?} is not the outcome of a write"),
    }
}

/// Rejects a DELETE that releases a lock, as clients send it with `TF_HTTP_UNLOCK_METHOD=DELETE`. They send
/// the digest of its body, which is the lock, or empty for `force-unlock`. They send none with a delete.
struct NoDigest;

impl<S: Sync> FromRequestParts<S> for NoDigest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if parts.headers.contains_key("content-md5") { Err(delete_with_body()) } else { Ok(Self) }
    }
}

fn delete_with_body() -> Problem {
    Problem::malformed_request(format!(
        "a DELETE has no body, and no Content-MD5: it deletes the state. {DEFAULT_METHODS}"
    ))
}

/// Deletes the state: under the lock's id, or without one while nobody holds the lock. Clients of the
/// protocol send no id.
async fn delete(
    session: Session,
    Written { head: (Target { resource, .. }, query, NoDigest), content }: Written<(
        Target<Write>,
        StateQuery,
        NoDigest,
    )>,
) -> Result<StatusCode, Problem> {
    if !content.bytes.is_empty() {
        return Err(delete_with_body());
    }
    let outcome = if query.id.is_some() {
        change(&session, &resource, query, Action::Delete { condition: Condition::default() })
            .await?
    } else {
        Locks::new(&session, &resource)?.delete_unlocked().await?
    };
    match outcome {
        Outcome::Deleted { .. } => Ok(StatusCode::OK),
        other => unreachable!("{other:?} is not the outcome of a delete"),
    }
}

/// Changes the state under the id of the query.
async fn change(
    session: &Session,
    resource: &ResourceName,
    StateQuery { id, ttl }: StateQuery,
    action: Action,
) -> Result<Outcome, Problem> {
    let locks = Locks::new(session, resource)?;
    let lock = locks.load().await?;
    let held = lock.held.as_ref().filter(|held| Some(&held.fence.holder) == id.as_ref());
    let lost = || {
        let id = id.as_ref().map_or("", Holder::as_str);
        Problem::state_lock_lost(resource, &format!("the state is not locked by {id:?} any more"))
    };
    if held.is_none() && session.config.enforcement == Enforcement::Enforce {
        return Err(lost());
    }
    // The lock may have passed to another client by now. Then the token is stale.
    let offered = held.map(|held: &lock::Held| held.fence.clone());
    match session.submit(locks.on_state(offered, action)).await? {
        Outcome::Rejected(_) => Err(lost()),
        outcome => {
            if let Some(held) = held {
                locks.renew(&lock, held, ttl).await;
            }
            Ok(outcome)
        }
    }
}
