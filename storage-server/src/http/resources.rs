//! `/v1/resources/{name}`: fenced writes, reads, fenced reads and deletes of values.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    http::{HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use fence::{Holder, ResourceName, Token};
use serde::Serialize;

use super::{
    caller::{Read, Target, Write},
    problem::Problem,
    request::{
        Conditional, FENCING_HOLDER, FENCING_TOKEN, Fencing, FencingSequence, RequiredFencing,
        VersionAtLeast, Written,
    },
    service::Service,
    session::Session,
    values::Freshness,
};
use crate::{
    access::identity::Permission,
    operation::{Action, Condition, Content, Outcome, Value},
    row::{Described, StoredValue},
};

/// A value may be a page that somebody else has written. In a browser, it must not act with the reader's
/// certificate.
const VALUE_POLICY: HeaderValue = HeaderValue::from_static("default-src 'none'; sandbox");

pub(super) fn routes() -> Router<Arc<Service>> {
    let methods = get(read).put(write).delete(delete);
    // A path without a name has the same handlers, which report that the name is malformed.
    Router::new().route("/v1/resources/{*name}", methods.clone()).route("/v1/resources/", methods)
}

/// The answer to an accepted write or claim.
#[derive(Serialize)]
pub(super) struct Accepted<'a> {
    resource: &'a ResourceName,
    token: Option<Token>,
    holder: &'a Holder,
    version: u64,
}

impl<'a> Accepted<'a> {
    pub(super) fn new(
        resource: &'a ResourceName,
        fencing: &'a Fencing,
        version: u64,
    ) -> Json<Self> {
        Json(Self { resource, token: fencing.token, holder: &fencing.holder, version })
    }
}

/// The head of a write or a delete.
type WriteHead = (Target<Write>, RequiredFencing, FencingSequence, Conditional);

async fn write(
    session: Session,
    Written { head, content }: Written<WriteHead>,
) -> Result<Response, Problem> {
    let (Target { resource, ceiling, .. }, RequiredFencing(fencing), sequence, conditional) = head;
    let Conditional { condition, has_unmatchable } = conditional;
    let action = Action::Write { content, condition };
    let outcome = session.decide(fencing.write(&resource, ceiling, sequence, action)).await?;
    match outcome {
        Outcome::Written { version, created } => {
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Accepted::new(&resource, &fencing, version)).into_response())
        }
        Outcome::VersionMismatch { version } => {
            Err(Problem::version_mismatch(&resource, version, has_unmatchable))
        }
        other => unreachable!("{other:?} is not the outcome of a write"),
    }
}

async fn delete(
    session: Session,
    (Target { resource, ceiling, .. }, RequiredFencing(fencing), sequence, conditional): WriteHead,
) -> Result<StatusCode, Problem> {
    let Conditional { condition, has_unmatchable } = conditional;
    let action = Action::Delete { condition };
    match session.decide(fencing.write(&resource, ceiling, sequence, action)).await? {
        Outcome::Deleted { .. } => Ok(StatusCode::NO_CONTENT),
        Outcome::VersionMismatch { version } => {
            Err(Problem::version_mismatch(&resource, version, has_unmatchable))
        }
        other => unreachable!("{other:?} is not the outcome of a delete"),
    }
}

/// Reads the value. A `GET` with a token claims first; a `HEAD` never does.
async fn read(
    session: Session,
    method: Method,
    Target { resource, .. }: Target<Read>,
    fencing: Fencing,
    Conditional { condition: Condition { if_none_match, .. }, .. }: Conditional,
    VersionAtLeast(at_least): VersionAtLeast,
) -> Result<Response, Problem> {
    let claims = method == Method::GET && fencing.token.is_some();
    // A client that has this version does not get its value again.
    let unless_known = Condition { if_match: None, if_none_match };
    let is_known = |version| !unless_known.is_met_by(Some(version));
    let sends_value = |version| method != Method::HEAD && !is_known(version);
    let (version, value) = if claims {
        let ceiling = session.permit(&session.caller, Permission::Claim, resource.as_str())?;
        let operation = fencing.operation(&resource, ceiling, Action::Read);
        session.fenced_read(operation, sends_value).await?
    } else {
        let freshness = at_least.map_or(Freshness::Visible, Freshness::Version);
        let row = session.load_value(&resource, freshness, sends_value).await?;
        (row.version, row.value)
    };
    let mut response = value_response(&session, &resource, version, value, &fencing.holder)?;
    if is_known(version) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    Ok(response)
}

/// The answer with a value. If the value was not loaded, its description is enough: nothing of it is sent.
pub(super) fn value_response(
    session: &Session,
    resource: &ResourceName,
    version: u64,
    value: StoredValue,
    reader: &Holder,
) -> Result<Response, Problem> {
    let (content_type, size, written_with, bytes) = match value {
        StoredValue::Present(Value { content: Content { content_type, bytes }, written_with }) => {
            (content_type, bytes.len() as u64, written_with, bytes)
        }
        StoredValue::NotLoaded(Described { content_type, size, written_with }) => {
            let content_type = content_type.ok_or_else(|| session.unreadable_type(resource))?;
            (content_type, size, written_with, Bytes::new())
        }
        StoredValue::Absent | StoredValue::Unknown => return Err(Problem::no_value(resource)),
    };
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    let ascii = |text: String| {
        HeaderValue::try_from(text)
            .expect("requests with other characters are rejected, and such rows are unreadable")
    };
    headers.insert(header::CONTENT_TYPE, ascii(content_type));
    headers.insert(header::CONTENT_SECURITY_POLICY, VALUE_POLICY);
    headers.insert(header::ETAG, ascii(format!("\"{version}\"")));
    if let Some(written_with) = written_with {
        headers.insert(FENCING_TOKEN.clone(), HeaderValue::from(written_with.token.as_u64()));
        let holder = visible_holder(&written_with.holder, reader);
        headers.insert(FENCING_HOLDER.clone(), ascii(holder));
    }
    Ok(response)
}

/// A holder as the reader may see it: whole only if the reader sent the same one.
pub(super) fn visible_holder(holder: &Holder, reader: &Holder) -> String {
    if holder == reader { holder.as_str().to_owned() } else { holder.redacted() }
}
