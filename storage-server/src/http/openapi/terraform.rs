//! The operations and schemas of `/v1/terraform/{name}`.

use axum::http::StatusCode;
use utoipa::openapi::{
    Content, ObjectBuilder, Ref, RefOr, Required, ResponseBuilder, Schema,
    path::{HttpMethod, Parameter},
    request_body::RequestBodyBuilder,
};

use super::{
    described::Described,
    operations::{json, value},
    parts::{self, lock_id_text, object, text, token, version},
};
use crate::http::{
    problem::kind::{
        ENCODED_VALUE, MALFORMED_NAME, MALFORMED_REQUEST, NOT_FOUND, NOT_JSON, SLOW_BODY,
        STATE_LOCK_LOST, STATE_LOCKED, TOKEN_REQUIRED, VALUE_TOO_LARGE,
    },
    terraform::{LOCK, UNLOCK},
};

pub(super) const PATH: &str = "/v1/terraform/{name}";
/// The members of a lock beside its ID.
const LOCK_MEMBERS: [&str; 6] = ["Operation", "Info", "Who", "Version", "Created", "Path"];

/// The operations whose methods OpenAPI 3.1 does not know.
pub(super) fn additional() -> impl Iterator<Item = (String, Described)> {
    [(LOCK, lock()), (UNLOCK, unlock())].into_iter().map(|(method, it)| (method.to_owned(), it))
}

pub(super) fn schemas() -> impl Iterator<Item = (String, RefOr<Schema>)> {
    let lock_info = LOCK_MEMBERS
        .into_iter()
        .fold(ObjectBuilder::new(), |object, name| object.property(name, text()))
        .property("ID", lock_id_text())
        .required("ID")
        .description(Some("A lock, as Terraform describes it. Other members are left out."));
    let locked = object([
        ("resource", text().into()),
        ("token", token().into()),
        ("ttl_ms", version().into()),
    ]);
    [("LockInfo", lock_info), ("Locked", locked)]
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema.into()))
}

/// Adds the members of the lock that is in the way.
pub(super) fn with_lock_info(document: ObjectBuilder) -> ObjectBuilder {
    LOCK_MEMBERS
        .into_iter()
        .fold(document, |document, name| document.property(name, text()))
        .property("ID", lock_id_text())
        .required("ID")
}

pub(super) fn read() -> Described {
    Described::new(HttpMethod::Get, PATH, "readState", "Read a state of Terraform")
        .about("The state is the value of the resource `terraform/{name}`.")
        .parameters([name()])
        .answers(StatusCode::OK, value())
        .problems(&[&MALFORMED_NAME, &NOT_FOUND])
        .for_known_clients()
}

pub(super) fn upload() -> Described {
    let state = Content::new(Some(ObjectBuilder::new()));
    let body = RequestBodyBuilder::new()
        .description(Some("The state."))
        .required(Some(Required::True))
        .content("application/json", state);
    let mut id = parts::lock_id();
    id.required = Required::True;
    Described::new(HttpMethod::Post, PATH, "uploadState", "Write a state of Terraform")
        .about("It is written with the token of the lock, and renews the lock.")
        .parameters([name(), id, parts::ttl()])
        .answers(StatusCode::OK, done("It replaced a state."))
        .answers(StatusCode::CREATED, done("It is the first state."))
        .problems(&[&MALFORMED_NAME, &MALFORMED_REQUEST, &STATE_LOCK_LOST, &TOKEN_REQUIRED])
        .problems(&[&SLOW_BODY, &VALUE_TOO_LARGE, &NOT_JSON, &ENCODED_VALUE])
        .for_known_clients()
        .body(body)
}

pub(super) fn delete() -> Described {
    Described::new(HttpMethod::Delete, PATH, "deleteState", "Delete a state of Terraform")
        .about("Without an ID, nobody may hold the lock.")
        .parameters([name(), parts::lock_id()])
        .answers(StatusCode::OK, done("There is no state now."))
        .problems(&[&MALFORMED_NAME, &MALFORMED_REQUEST, &STATE_LOCK_LOST, &STATE_LOCKED])
        .problems(&[&SLOW_BODY, &VALUE_TOO_LARGE, &ENCODED_VALUE])
        .for_known_clients()
}

fn lock() -> Described {
    // The method in the document is that of `additional`.
    Described::new(HttpMethod::Post, PATH, "lockState", "Lock a state of Terraform")
        .about("The same ID renews the lock. An expired lock passes to another ID.")
        .parameters([name(), parts::ttl()])
        .answers(StatusCode::OK, json("The lock is held.", "Locked"))
        .problems(&[&MALFORMED_NAME, &MALFORMED_REQUEST, &STATE_LOCKED, &STATE_LOCK_LOST])
        .problems(&[&SLOW_BODY, &VALUE_TOO_LARGE, &ENCODED_VALUE])
        .for_known_clients()
        .body(lock_info().required(Some(Required::True)))
}

fn unlock() -> Described {
    Described::new(HttpMethod::Post, PATH, "unlockState", "Unlock a state of Terraform")
        .about("Without an ID in body and query, any lock is released: force-unlock sends none.")
        .parameters([name(), parts::lock_id()])
        .answers(StatusCode::OK, done("The lock is released."))
        .problems(&[&MALFORMED_NAME, &MALFORMED_REQUEST, &STATE_LOCK_LOST])
        .problems(&[&SLOW_BODY, &VALUE_TOO_LARGE, &ENCODED_VALUE])
        .for_known_clients()
        .body(lock_info())
}

fn name() -> Parameter {
    // `terraform-lock/` stands before it in the name of a resource.
    parts::name_up_to(497, "The state's name: up to 497 bytes of UTF-8.")
}

fn lock_info() -> RequestBodyBuilder {
    RequestBodyBuilder::new()
        .description(Some("The lock, of at most 16 KiB."))
        .content("application/json", Content::new(Some(Ref::from_schema_name("LockInfo"))))
}

fn done(description: &str) -> ResponseBuilder {
    ResponseBuilder::new().description(description)
}
