//! The parts of a request: the name in the path, the fencing headers, conditions and the value.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, HeaderName, header, request::Parts},
    response::{IntoResponse, Response},
};
use fence::{Fence, Holder, InvalidHolder, InvalidToken, ResourceName, Token};
use percent_encoding::percent_decode_str;

use super::{body, body_digest, problem::Problem, service::Service};
use crate::{
    config::Enforcement,
    operation::{Action, Condition, Content, Operation, Versions},
    sequence::{Numbered, Sequence},
};

/// The longest `Content-Type` that is kept with a value.
const MAX_CONTENT_TYPE_BYTES: usize = 256;

pub(super) static FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
pub(super) static FENCING_HOLDER: HeaderName = HeaderName::from_static("fencing-holder");
static FENCING_SEQUENCE: HeaderName = HeaderName::from_static("fencing-sequence");
static IF_VERSION_AT_LEAST: HeaderName = HeaderName::from_static("if-version-at-least");

/// Before the name of a state. Its resource is called `terraform/NAME`.
const STATES: &str = "/v1/terraform/";

/// The resource's name, after `/v1/resources/` or `/v1/fences/` in the path. After `/v1/terraform/`, that
/// of the state's resource.
pub(super) struct Name(pub(super) ResourceName);

impl<S: Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::from_path(parts.uri.path())
    }
}

impl Name {
    /// Parses the name in a path.
    pub(super) fn from_path(path: &str) -> Result<Self, Problem> {
        let parts_before = if path.starts_with(STATES) { 2 } else { 3 };
        let encoded = path.splitn(parts_before + 1, '/').nth(parts_before).unwrap_or_default();
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

/// The fencing headers of a request that needs no token.
pub(super) struct Fencing {
    pub(super) token: Option<Token>,
    pub(super) holder: Holder,
}

impl Fencing {
    /// The offered token and holder, if there is a token.
    fn offered(&self) -> Option<Fence> {
        self.token.map(|token| Fence { token, holder: self.holder.clone() })
    }

    /// The operation that the client requests, whose tokens may be up to the ceiling.
    pub(super) fn operation(
        &self,
        resource: &ResourceName,
        ceiling: Token,
        action: Action,
    ) -> Operation {
        Operation {
            resource: resource.clone(),
            offered: self.offered(),
            ceiling,
            numbered: None,
            action,
        }
    }

    /// The write or delete that the client requests, which may have a number.
    pub(super) fn write(
        &self,
        resource: &ResourceName,
        ceiling: Token,
        FencingSequence(sequence): FencingSequence,
        action: Action,
    ) -> Operation {
        let numbered = sequence.map(|sequence| Numbered::new(sequence, &action));
        Operation { numbered, ..self.operation(resource, ceiling, action) }
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

/// The fencing headers of a request that needs a token, if the server enforces.
pub(super) struct RequiredFencing(pub(super) Fencing);

impl FromRequestParts<Arc<Service>> for RequiredFencing {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Self, Problem> {
        let fencing = Fencing::from_request_parts(parts, service).await?;
        if fencing.token.is_none() && service.config.enforcement == Enforcement::Enforce {
            return Err(Problem::token_required("the header Fencing-Token"));
        }
        Ok(Self(fencing))
    }
}

/// The number of a write that may be sent again, if it has one.
pub(super) struct FencingSequence(pub(super) Option<Sequence>);

impl<S: Sync> FromRequestParts<S> for FencingSequence {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let sequence = single(&parts.headers, &FENCING_SEQUENCE)
            .map_err(|Repeated| Problem::repeated_sequence())?
            .map(|sequence| str::from_utf8(sequence).ok()?.parse().ok())
            .map(|sequence| sequence.ok_or_else(Problem::malformed_sequence))
            .transpose()?;
        Ok(Self(sequence))
    }
}

/// The version that a read must have at least, if the client knows one.
pub(super) struct VersionAtLeast(pub(super) Option<u64>);

impl<S: Sync> FromRequestParts<S> for VersionAtLeast {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let malformed = || Problem::malformed_request("If-Version-At-Least must be one version");
        let version = single(&parts.headers, &IF_VERSION_AT_LEAST);
        let Some(version) = version.map_err(|Repeated| malformed())? else {
            return Ok(Self(None));
        };
        // A sign is no digit.
        let version = Some(version).filter(|version| version.iter().all(u8::is_ascii_digit));
        let version = version.and_then(|version| str::from_utf8(version).ok()?.parse().ok());
        Ok(Self(Some(version.ok_or_else(malformed)?)))
    }
}

/// The header was sent more than once.
pub(super) struct Repeated;

pub(super) fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Repeated),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

/// The conditions of a request on the version.
pub(super) struct Conditional {
    pub(super) condition: Condition,
    /// Whether a tag of `If-Match` matches no version, whichever the resource has.
    pub(super) has_unmatchable: bool,
}

impl<S: Sync> FromRequestParts<S> for Conditional {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let (if_match, has_unmatchable) =
            versions(&parts.headers, &header::IF_MATCH, Comparison::Strong)?;
        let (if_none_match, _) =
            versions(&parts.headers, &header::IF_NONE_MATCH, Comparison::Weak)?;
        Ok(Self { condition: Condition { if_match, if_none_match }, has_unmatchable })
    }
}

/// How entity tags are compared (RFC 9110, section 8.8.3.2). The server's tags are strong, so a
/// weak tag matches no version in a strong comparison.
#[derive(PartialEq)]
enum Comparison {
    Strong,
    Weak,
}

/// The versions in a condition's entity tags, and whether a tag matches none. A tag that this server can't
/// have made is left out.
fn versions(
    headers: &HeaderMap,
    name: &HeaderName,
    comparison: Comparison,
) -> Result<(Option<Versions>, bool), Problem> {
    let malformed =
        || Problem::malformed_request(format!("{name} must be * or a list of entity tags"));
    let (mut versions, mut has_unmatchable) = (None, false);
    for line in headers.get_all(name) {
        let line = line.to_str().map_err(|_| malformed())?;
        if line.trim() == "*" {
            return Ok((Some(Versions::Any), false));
        }
        let versions = versions.get_or_insert_with(Vec::new);
        for tag in split_tags(line).map(str::trim).filter(|tag| !tag.is_empty()) {
            let (strong, quoted) = match tag.strip_prefix("W/") {
                Some(quoted) => (false, quoted),
                None => (true, tag),
            };
            let version = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            let version = version.filter(|version| !version.contains('"')).ok_or_else(malformed)?;
            let version = version.parse().ok().filter(|n: &u64| n.to_string() == version);
            match version.filter(|_| strong || comparison == Comparison::Weak) {
                Some(version) => versions.push(version),
                None => has_unmatchable = true,
            }
        }
    }
    Ok((versions.map(Versions::Listed), has_unmatchable))
}

/// Splits a list of entity tags. A tag may have commas itself.
fn split_tags(list: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    list.split(move |character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    })
}

/// A request that writes: what the head says, and the value.
pub(super) struct Written<H> {
    pub(super) head: H,
    pub(super) content: Content,
}

impl<H: FromRequestParts<Arc<Service>> + Send> FromRequest<Arc<Service>> for Written<H> {
    type Rejection = Response;

    async fn from_request(request: Request, service: &Arc<Service>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let head = H::from_request_parts(&mut parts, service).await;
        let head = head.map_err(IntoResponse::into_response)?;
        let content = read_content(&parts.headers, body, service).await;
        Ok(Self { head, content: content.map_err(IntoResponse::into_response)? })
    }
}

async fn read_content(
    headers: &HeaderMap,
    body: Body,
    service: &Service,
) -> Result<Content, Problem> {
    let bytes = body::read(body, service).await?;
    let content_type = content_type(headers)?;
    // The value is stored as it is sent, whole and not encoded.
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(Problem::malformed_request("a part of a value can't be written"));
    }
    require_no_encoding(headers)?;
    body_digest::require_match(headers, &bytes)?;
    Ok(Content { content_type, bytes })
}

/// Rejects a body with a `Content-Encoding`.
pub(super) fn require_no_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    if encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        Ok(())
    } else {
        Err(Problem::encoded_value())
    }
}

/// Rejects a body that is not declared as JSON. A page on the web may let a browser send such a body
/// to another origin without asking that first, and the server may know the browser by its address.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type = single(headers, &header::CONTENT_TYPE).ok().flatten().unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if essence.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        Ok(())
    } else {
        Err(Problem::not_json())
    }
}

fn content_type(headers: &HeaderMap) -> Result<String, Problem> {
    let text = single(headers, &header::CONTENT_TYPE)
        .map_err(|Repeated| Problem::malformed_request("Content-Type was sent more than once"))?;
    parse_content_type(text.unwrap_or_default())
}

/// The type of a value. The empty one is the default.
pub(super) fn parse_content_type(text: &[u8]) -> Result<String, Problem> {
    if text.is_empty() {
        Ok("application/octet-stream".to_owned())
    } else if text.len() > MAX_CONTENT_TYPE_BYTES {
        Err(Problem::malformed_request(format!(
            "Content-Type may have at most {MAX_CONTENT_TYPE_BYTES} bytes"
        )))
    } else if Content::allows_type(text) {
        Ok(String::from_utf8_lossy(text).into_owned())
    } else {
        Err(Problem::malformed_request("Content-Type is not ASCII"))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn entity_tags_may_have_commas() {
        let versions = |list: &str| {
            let headers = [(header::IF_MATCH, HeaderValue::from_str(list).unwrap())];
            super::versions(&HeaderMap::from_iter(headers), &header::IF_MATCH, Comparison::Strong)
                .map(|(versions, _)| versions)
        };
        for (list, listed) in [
            (r#""3", "4""#, vec![3, 4]),
            (r#""3,4","5""#, vec![5]),
            (r#"W/"a,b" , "6""#, vec![6]),
            (r#"",""#, vec![]),
        ] {
            assert_eq!(versions(list).unwrap(), Some(Versions::Listed(listed)), "{list}");
        }
        for malformed in [r#""3,4"#, r#"3,4"#, r#""3" "4""#, r#""3"4","5""#] {
            assert!(versions(malformed).is_err(), "{malformed}");
        }
    }
}
