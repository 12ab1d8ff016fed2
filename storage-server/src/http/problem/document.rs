//! The document of a problem, and its response.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;

use super::{Problem, Slug, kind::Kind};
use crate::{connections::OverBudget, memory_budget::with_memory};

impl Problem {
    pub(super) fn new(kind: &'static Kind, detail: impl ToString) -> Self {
        Self {
            kind,
            detail: detail.to_string(),
            members: Map::new(),
            memory: None,
            is_over_budget: false,
        }
    }

    /// Adds a member to the document.
    pub(in crate::http) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.to_owned(), value.into());
        self
    }

    /// Adds a member that is more than a text or a number.
    pub(in crate::http) fn with_json(self, member: &str, value: &impl Serialize) -> Self {
        let value = serde_json::to_value(value).expect("names, numbers and text are JSON");
        self.with(member, value)
    }

    /// Makes the document keep this memory until it was sent.
    pub(in crate::http) fn with_memory(self, memory: OwnedSemaphorePermit) -> Self {
        Self { memory: Some(memory), ..self }
    }
}

#[derive(Serialize)]
struct Document {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(flatten)]
    members: Map<String, Value>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { kind, detail, members, memory, is_over_budget } = self;
        let document = Document {
            r#type: format!("/problems/{}", kind.slug),
            title: kind.title,
            status: kind.status.as_u16(),
            detail,
            members,
        };
        let document = serde_json::to_vec(&document).expect("text and numbers are JSON");
        let document = match memory {
            Some(memory) => with_memory(document.into_boxed_slice(), memory),
            None => document.into(),
        };
        let mut response = (kind.status, document).into_response();
        response.extensions_mut().insert(Slug(kind.slug));
        if is_over_budget {
            response.extensions_mut().insert(OverBudget);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if kind.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&kind.status) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
