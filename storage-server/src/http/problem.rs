//! Errors, as problem documents (RFC 9457), and the pages that explain them.

use axum::{
    Json, Router,
    extract::Path,
    http::{HeaderValue, Method, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use fence::{InvalidHolder, InvalidName, InvalidToken, Refusal, RefusalReason, ResourceName};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::committer::{Unavailable, UnavailableOutcome};

/// What every problem of a kind has in common.
#[derive(Debug)]
struct Kind {
    slug: &'static str,
    status: StatusCode,
    title: &'static str,
    explanation: &'static str,
}

macro_rules! kinds {
    ($($name:ident = $slug:literal, $status:ident, $title:literal, $explanation:literal;)*) => {
        $(static $name: Kind = Kind {
            slug: $slug,
            status: StatusCode::$status,
            title: $title,
            explanation: $explanation,
        };)*
        static KINDS: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    MALFORMED_TOKEN = "malformed-token", BAD_REQUEST, "The fencing token is malformed",
        "The header Fencing-Token was sent more than once, or its value is not a token: a whole \
         number from 1 to 999999999999999 in plain digits, without a sign, spaces, decimals or \
         leading zeros. Send the token exactly as the lock gave it.";
    MALFORMED_HOLDER = "malformed-holder", BAD_REQUEST, "The holder is malformed",
        "The header Fencing-Holder was sent more than once, or its value is not a holder: up to 128 \
         characters of visible ASCII, without spaces.";
    MALFORMED_NAME = "malformed-name", BAD_REQUEST, "The resource's name is malformed",
        "A name is 1 to 512 bytes of UTF-8 without control characters. Its segments, between \
         slashes, are not empty, '.' or '..', because clients and proxies rewrite such paths to \
         another resource. Slashes may stand in the path; anything else is percent-encoded.";
    MALFORMED_REQUEST = "malformed-request", BAD_REQUEST, "The request is malformed",
        "A header, the query or the body can't be understood; the detail says which.";
    NOT_FOUND = "not-found", NOT_FOUND, "There is nothing here",
        "The resource has no value, or no fence; or the path is none of this server's. A fenced \
         read of a resource without a value has claimed all the same.";
    METHOD_NOT_ALLOWED = "method-not-allowed", METHOD_NOT_ALLOWED, "The method is not allowed here",
        "The path exists, but not with this method. The header Allow lists those it has.";
    HOLDER_CONFLICT = "holder-conflict", CONFLICT, "The token belongs to another holder",
        "The same token was already accepted from another holder: the lock's counter went backwards \
         and issued the token twice. Nothing was changed. If you have claimed this resource before, \
         somebody else was let in meanwhile: what you have read is void, so start again from \
         acquiring the lock. If not, get a higher token for your lock (reissue) and claim with that.";
    STALE_TOKEN = "stale-token", PRECONDITION_FAILED, "The token is stale",
        "A higher token was already accepted for this resource: the lock was granted to somebody \
         else after your token was issued. Nothing was changed. Don't send it again; what you have \
         read is void, so start again from acquiring the lock.";
    VERSION_MISMATCH = "version-mismatch", PRECONDITION_FAILED, "The version is another",
        "If-Match or If-None-Match did not hold of the value's version, so the value was not \
         changed. The token was good, and it has claimed.";
    VALUE_TOO_LARGE = "value-too-large", PAYLOAD_TOO_LARGE, "The value is too large",
        "The body has more bytes than the limit that the server was started with (--max-value-bytes).";
    TOKEN_REQUIRED = "token-required", PRECONDITION_REQUIRED, "A fencing token is required",
        "Writes, deletes and claims need the header Fencing-Token, with the token that the lock \
         gave. Without it the server could not tell a late writer.";
    UNAVAILABLE = "unavailable", SERVICE_UNAVAILABLE, "The server can't decide now",
        "The database can't be reached, or too much is queued. If outcome is none, nothing has \
         happened and nothing will: try again. If it is unknown, the write may have happened, or \
         may yet: before anything else, take a higher token and make a fenced read with it, which \
         shows whether it did and cuts it off if it did not.";
}

/// An error as it is answered.
#[derive(Debug)]
pub(super) struct Problem {
    kind: &'static Kind,
    detail: String,
    members: Map<String, Value>,
}

impl Problem {
    pub(super) fn malformed_token(error: InvalidToken) -> Self {
        Self::new(&MALFORMED_TOKEN, error)
    }

    pub(super) fn malformed_holder(error: InvalidHolder) -> Self {
        Self::new(&MALFORMED_HOLDER, error)
    }

    pub(super) fn malformed_name(error: InvalidName) -> Self {
        Self::new(&MALFORMED_NAME, error)
    }

    pub(super) fn malformed_request(detail: impl ToString) -> Self {
        Self::new(&MALFORMED_REQUEST, detail)
    }

    pub(super) fn repeated_token() -> Self {
        Self::new(&MALFORMED_TOKEN, "Fencing-Token was sent more than once")
    }

    pub(super) fn repeated_holder() -> Self {
        Self::new(&MALFORMED_HOLDER, "Fencing-Holder was sent more than once")
    }

    pub(super) fn malformed_path() -> Self {
        Self::new(&MALFORMED_NAME, "a '%' in a path is followed by two hexadecimal digits")
    }

    pub(super) fn no_value(resource: &ResourceName) -> Self {
        Self::new(&NOT_FOUND, "the resource has no value").with("resource", resource.as_str())
    }

    pub(super) fn no_fence(resource: &ResourceName) -> Self {
        Self::new(&NOT_FOUND, "the resource has no fence").with("resource", resource.as_str())
    }

    pub(super) fn no_such_page(path: &str) -> Self {
        Self::new(&NOT_FOUND, format!("this server has no {path}"))
    }

    pub(super) fn method_not_allowed(method: &Method, path: &str) -> Self {
        Self::new(&METHOD_NOT_ALLOWED, format!("{path} has no {method}"))
    }

    pub(super) fn refused(resource: &ResourceName, refusal: Refusal) -> Self {
        let Refusal { reason, token, highest_token } = refusal;
        let (kind, detail) = match reason {
            RefusalReason::Stale => {
                (&STALE_TOKEN, format!("token {token} is below the fence at {highest_token}"))
            }
            RefusalReason::HolderConflict => {
                (&HOLDER_CONFLICT, format!("token {token} was accepted from another holder"))
            }
        };
        Self::new(kind, detail)
            .with("resource", resource.as_str())
            .with("token", token.as_u64())
            .with("highest_token", highest_token.as_u64())
    }

    pub(super) fn version_mismatch(resource: &ResourceName, version: u64) -> Self {
        Self::new(&VERSION_MISMATCH, format!("the resource is at version {version}"))
            .with("resource", resource.as_str())
            .with("version", version)
    }

    pub(super) fn value_too_large(limit: usize) -> Self {
        Self::new(&VALUE_TOO_LARGE, format!("a value has at most {limit} bytes"))
            .with("limit", limit)
    }

    pub(super) fn token_required() -> Self {
        Self::new(&TOKEN_REQUIRED, "there is no Fencing-Token")
    }

    pub(super) fn unavailable(unavailable: Unavailable) -> Self {
        let outcome = match unavailable.outcome {
            UnavailableOutcome::None => "none",
            UnavailableOutcome::Unknown => "unknown",
        };
        Self::new(&UNAVAILABLE, unavailable.reason).with("outcome", outcome)
    }

    fn new(kind: &'static Kind, detail: impl ToString) -> Self {
        Self { kind, detail: detail.to_string(), members: Map::new() }
    }

    fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.to_owned(), value.into());
        self
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
        let Self { kind, detail, members } = self;
        let document = Document {
            r#type: format!("/problems/{}", kind.slug),
            title: kind.title,
            status: kind.status.as_u16(),
            detail,
            members,
        };
        let mut response = (kind.status, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if kind.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/problems", get(index)).route("/problems/{slug}", get(page))
}

async fn index() -> Html<String> {
    let items = KINDS.iter().map(|kind| {
        let Kind { slug, status, title, .. } = kind;
        format!("<li><a href=\"/problems/{slug}\">{slug}</a>: {status}. {title}.</li>\n")
    });
    html("Problems", &format!("<ul>\n{}</ul>", items.collect::<String>()))
}

async fn page(Path(slug): Path<String>) -> Result<Html<String>, Problem> {
    let kind = KINDS
        .iter()
        .find(|kind| kind.slug == slug)
        .ok_or_else(|| Problem::no_such_page(&format!("/problems/{slug}")))?;
    let Kind { slug, status, title, explanation } = kind;
    Ok(html(title, &format!("<p><code>{slug}</code>, status {status}</p>\n<p>{explanation}</p>")))
}

fn html(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n{body}\n</html>\n"
    ))
}
