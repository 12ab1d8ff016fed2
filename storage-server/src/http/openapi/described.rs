//! How one operation of the OpenAPI document is described.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use utoipa::openapi::{
    Response, ResponseBuilder,
    path::{HttpMethod, OperationBuilder, Parameter},
    request_body::RequestBodyBuilder,
    security::SecurityRequirement,
};

use super::{BASIC, BEARER, CERTIFICATE, parts, problems, terraform};
use crate::http::problem::kind::{
    FORBIDDEN, HEAD_TOO_LARGE, Kind, TOO_MANY_REQUESTS, UNAUTHENTICATED, UNAVAILABLE, WRONG_HOST,
};

/// An operation that is being described.
pub(super) struct Described {
    pub(super) method: HttpMethod,
    pub(super) path: &'static str,
    pub(super) operation: OperationBuilder,
    responses: BTreeMap<u16, Response>,
    problems: BTreeMap<u16, Vec<&'static Kind>>,
}

impl Described {
    pub(super) fn new(method: HttpMethod, path: &'static str, id: &str, summary: &str) -> Self {
        let operation = OperationBuilder::new().operation_id(Some(id)).summary(Some(summary));
        let described =
            Self { method, path, operation, responses: BTreeMap::new(), problems: BTreeMap::new() };
        // Every request needs memory for its head.
        described.problems(&[&WRONG_HOST, &HEAD_TOO_LARGE, &UNAVAILABLE])
    }

    pub(super) fn about(mut self, description: &str) -> Self {
        self.operation = self.operation.description(Some(description));
        self
    }

    pub(super) fn parameters(mut self, parameters: impl IntoIterator<Item = Parameter>) -> Self {
        for parameter in parameters {
            self.operation = self.operation.parameter(parameter);
        }
        self
    }

    pub(super) fn answers(mut self, status: StatusCode, response: ResponseBuilder) -> Self {
        self.responses.insert(status.as_u16(), response.build());
        self
    }

    pub(super) fn problems(mut self, kinds: &[&'static Kind]) -> Self {
        for kind in kinds {
            self.problems.entry(kind.status.as_u16()).or_default().push(kind);
        }
        self
    }

    /// The client may prove its identity.
    pub(super) fn identifies(mut self) -> Self {
        let nothing: [&str; 0] = [];
        for requirement in [
            SecurityRequirement::default(),
            SecurityRequirement::new(BEARER, nothing),
            SecurityRequirement::new(CERTIFICATE, nothing),
        ] {
            self.operation = self.operation.security(requirement);
        }
        if self.path == terraform::PATH {
            self.operation = self.operation.security(SecurityRequirement::new(BASIC, nothing));
        }
        self
    }

    /// The server may need the client's identity, and limit its requests.
    pub(super) fn for_known_clients(self) -> Self {
        self.identifies().problems(&[&UNAUTHENTICATED, &FORBIDDEN, &TOO_MANY_REQUESTS])
    }

    pub(super) fn body(mut self, body: RequestBodyBuilder) -> Self {
        self.operation = self.operation.request_body(Some(body.build()));
        self
    }

    /// Adds what all operations have in common.
    pub(super) fn finish(mut self) -> Self {
        let is_head = self.method == HttpMethod::Head;
        for (status, kinds) in &self.problems {
            let mut response = problems::response(kinds);
            if is_head {
                response.content.clear();
            }
            self.responses.insert(*status, response);
        }
        let has_value_headers = ["/v1/resources/{name}", terraform::PATH].contains(&self.path)
            && matches!(self.method, HttpMethod::Get | HttpMethod::Head);
        for (status, mut response) in std::mem::take(&mut self.responses) {
            response
                .headers
                .extend(parts::common_headers().map(|(name, it)| (name.to_owned(), it)));
            if has_value_headers && [200, 304].contains(&status) {
                let headers = parts::value_headers();
                response.headers.extend(headers.map(|(name, it)| (name.to_owned(), it)));
            }
            self.operation = self.operation.response(status.to_string(), response);
        }
        self.parameters(parts::common_parameters())
    }
}
