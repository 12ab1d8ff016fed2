//! What requests carry: the name in the path, the fencing headers, conditions and the value.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Request, rejection::BytesRejection},
    http::{HeaderMap, HeaderName, StatusCode, header, request::Parts},
};
use bytes::Bytes;
use fence::{Fence, Holder, InvalidHolder, InvalidToken, ResourceName, Token};
use percent_encoding::percent_decode_str;

use super::{Problem, Service};
use crate::{
    Enforcement,
    operation::{Condition, Content, Versions},
};

pub(super) static FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
pub(super) static FENCING_HOLDER: HeaderName = HeaderName::from_static("fencing-holder");

/// The resource that the path names, after `/v1/resources/` or `/v1/fences/`.
pub(super) struct Name(pub(super) ResourceName);

impl<S: Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let encoded = parts.uri.path().splitn(4, '/').nth(3).unwrap_or_default();
        let mut escapes = encoded.split('%').skip(1).map(str::as_bytes);
        if !escapes.all(
            |escape| matches!(escape, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit()),
        ) {
            return Err(Problem::malformed_path());
        }
        let name: Vec<u8> = percent_decode_str(encoded).collect();
        name.try_into().map(Self).map_err(Problem::malformed_name)
    }
}

/// The fencing headers of a request that may go without a token.
pub(super) struct Fencing {
    pub(super) token: Option<Token>,
    pub(super) holder: Holder,
}

impl Fencing {
    /// What the request offers, if it has a token.
    pub(super) fn offered(&self) -> Option<Fence> {
        self.token.map(|token| Fence { token, holder: self.holder.clone() })
    }
}

impl<S: Sync> FromRequestParts<S> for Fencing {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let token = single(&parts.headers, &FENCING_TOKEN)
            .map_err(|Repeated| Problem::repeated_token())?
            .map(|token| std::str::from_utf8(token).map_err(|_| InvalidToken)?.parse())
            .transpose()
            .map_err(Problem::malformed_token)?;
        let holder = single(&parts.headers, &FENCING_HOLDER)
            .map_err(|Repeated| Problem::repeated_holder())?
            .map(|holder| std::str::from_utf8(holder).map_err(|_| InvalidHolder)?.parse())
            .transpose()
            .map_err(Problem::malformed_holder)?
            .unwrap_or_default();
        Ok(Self { token, holder })
    }
}

/// The fencing headers of a request that needs a token, unless the server does not enforce.
pub(super) struct RequiredFencing(pub(super) Fencing);

impl FromRequestParts<Arc<Service>> for RequiredFencing {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Self, Problem> {
        let fencing = Fencing::from_request_parts(parts, service).await?;
        if fencing.token.is_none() {
            match service.enforcement {
                Enforcement::Enforce => return Err(Problem::token_required()),
                Enforcement::Report => {
                    let (method, path) = (&parts.method, parts.uri.path());
                    tracing::warn!(%method, path, "accepted what has no token");
                }
                Enforcement::Off => {}
            }
        }
        Ok(Self(fencing))
    }
}

/// A header was sent more than once.
struct Repeated;

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Repeated),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

/// What a request demands of the version.
pub(super) struct Conditional(pub(super) Condition);

impl<S: Sync> FromRequestParts<S> for Conditional {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(Condition {
            if_match: versions(&parts.headers, &header::IF_MATCH, Comparison::Strong)?,
            if_none_match: versions(&parts.headers, &header::IF_NONE_MATCH, Comparison::Weak)?,
        }))
    }
}

/// How entity tags compare (RFC 9110, section 8.8.3.2). Ours are strong: a weak one names no version
/// where the comparison is strong.
#[derive(PartialEq)]
enum Comparison {
    Strong,
    Weak,
}

/// The versions that a condition's entity tags name; a tag that is none of ours names none.
fn versions(
    headers: &HeaderMap,
    name: &HeaderName,
    comparison: Comparison,
) -> Result<Option<Versions>, Problem> {
    let malformed =
        || Problem::malformed_request(format!("{name} is neither * nor a list of entity tags"));
    let mut versions = None;
    for line in headers.get_all(name) {
        let line = line.to_str().map_err(|_| malformed())?;
        if line.trim() == "*" {
            return Ok(Some(Versions::Any));
        }
        let versions = versions.get_or_insert_with(Vec::new);
        for tag in line.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            let (strong, quoted) = match tag.strip_prefix("W/") {
                Some(quoted) => (false, quoted),
                None => (true, tag),
            };
            let version = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let version = version.filter(|version| !version.contains('"')).ok_or_else(malformed)?;
            if strong || comparison == Comparison::Weak {
                versions.extend(version.parse().ok().filter(|n: &u64| n.to_string() == version));
            }
        }
    }
    Ok(versions.map(Versions::These))
}

/// The value that a request brings.
pub(super) struct Body(pub(super) Content);

impl FromRequest<Arc<Service>> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Problem> {
        let content_type = match single(request.headers(), &header::CONTENT_TYPE) {
            Ok(None | Some(b"")) => "application/octet-stream".to_owned(),
            Ok(Some(text)) if text.iter().all(|byte| matches!(byte, b' '..=b'~')) => {
                String::from_utf8_lossy(text).into_owned()
            }
            _ => {
                return Err(Problem::malformed_request("Content-Type is repeated or not ASCII"));
            }
        };
        let limit = service.max_value_bytes;
        let bytes =
            Bytes::from_request(request, service).await.map_err(|rejection| match rejection {
                BytesRejection::FailedToBufferBody(failed)
                    if failed.status() == StatusCode::PAYLOAD_TOO_LARGE =>
                {
                    Problem::value_too_large(limit)
                }
                rejection => Problem::malformed_request(format!("the body: {rejection}")),
            })?;
        Ok(Self(Content { content_type, bytes }))
    }
}
