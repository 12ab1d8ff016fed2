//! `/openapi.json`: the interface as an OpenAPI document, and `/docs`: the same as a page.
//!
//! A test compares the document with the routes, the headers and the answers of a real server.

mod described;
mod operations;
mod page;
mod parts;
mod problems;
mod terraform;
mod transactions;

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    http::header,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use utoipa::openapi::{
    Components, Info, License, OpenApi,
    security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::service::Service;

/// The member of a path with its operations whose methods OpenAPI 3.1 does not know. OpenAPI 3.2 calls
/// it `additionalOperations`.
const ADDITIONAL_OPERATIONS: &str = "x-additionalOperations";

/// The names of the security schemes.
const BEARER: &str = "bearer";
const BASIC: &str = "basic";
const CERTIFICATE: &str = "certificate";

pub(super) fn routes() -> Router<Arc<Service>> {
    Router::new().route("/openapi.json", get(show)).route("/docs", get(show_page))
}

async fn show() -> Response {
    static JSON: LazyLock<String> =
        LazyLock::new(|| serde_json::to_string_pretty(&document()).expect("it is JSON"));
    ([(header::CONTENT_TYPE, "application/json")], JSON.as_str()).into_response()
}

async fn show_page() -> Response {
    static PAGE: LazyLock<String> =
        LazyLock::new(|| page::render(&serde_json::to_value(document()).expect("it is JSON")));
    ([(header::CONTENT_SECURITY_POLICY, page::POLICY)], Html(PAGE.as_str())).into_response()
}

fn document() -> OpenApi {
    let mut info = Info::new("storage-server", env!("CARGO_PKG_VERSION"));
    info.description = Some(env!("CARGO_PKG_DESCRIPTION").to_owned());
    info.license = Some(License::new(env!("CARGO_PKG_LICENSE")));
    let mut document = OpenApi::new(info, operations::paths());
    document.components = Some(components());
    document
}

fn components() -> Components {
    let mut components = Components::new();
    components.schemas.extend(problems::schemas());
    components.schemas.extend(parts::schemas());
    components.schemas.extend(transactions::schemas());
    components.schemas.extend(terraform::schemas());
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "The bearer token of an identity in the server's auth file. A server without an auth file \
         serves every client.",
    ));
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer.build()));
    let basic = HttpBuilder::new().scheme(HttpAuthScheme::Basic).description(Some(
        "For states of Terraform only: the password is the bearer token, and the user has any name.",
    ));
    components.add_security_scheme(BASIC, SecurityScheme::Http(basic.build()));
    let description =
        "A client certificate with the name of an identity in the server's auth file.";
    let certificate =
        SecurityScheme::MutualTls { description: Some(description.to_owned()), extensions: None };
    components.add_security_scheme(CERTIFICATE, certificate);
    components
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::{for_all_clients, for_known_clients, metrics};

    /// The paths of a router, which it shows only for debugging.
    fn paths(router: &Router<Arc<Service>>) -> BTreeSet<String> {
        let shown = format!("{router:?}");
        let quoted = shown.split('"').skip(1).step_by(2);
        // A path without a name is there only to be rejected. The fallback is axum's own.
        let is_path = |text: &&str| {
            text.starts_with('/') && !text.ends_with('/') && !text.contains("__private")
        };
        quoted.filter(is_path).map(|path| path.replace("{*", "{")).collect()
    }

    #[test]
    fn every_route_is_in_the_document_and_nothing_else() {
        let routes = for_known_clients().merge(metrics::routes_for_operators());
        let routes = paths(&routes.merge(for_all_clients()));
        let described: BTreeSet<_> = document().paths.paths.into_keys().collect();
        assert_eq!(described, routes);
        assert!(routes.contains("/v1/resources/{name}"), "{routes:?}");
    }
}
