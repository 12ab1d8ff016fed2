//! `/openapi.json`: the interface as an OpenAPI document, and `/docs`: the same as a page.
//!
//! The document is a file, which is served as it is. Tests compare it with the routes, the problem types, the
//! headers and the limits in the code, and with the answers of a real server.

mod page;

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    http::header,
    response::{Html, IntoResponse, Response},
    routing::get,
};

use super::service::Service;

const DOCUMENT: &str = include_str!("../../openapi.json");

/// The member of a path with its operations whose methods OpenAPI 3.1 does not know. OpenAPI 3.2 calls
/// it `additionalOperations`.
const ADDITIONAL_OPERATIONS: &str = "x-additionalOperations";

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/openapi.json", get(show)).route("/docs", get(show_page))
}

async fn show() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

async fn show_page() -> Response {
    static PAGE: LazyLock<String> =
        LazyLock::new(|| page::render(&serde_json::from_str(DOCUMENT).expect("a test reads it")));
    ([(header::CONTENT_SECURITY_POLICY, page::POLICY)], Html(PAGE.as_str())).into_response()
}

#[cfg(test)]
mod tests;
