//! The client that sent a request, and what it may do.

use std::{marker::PhantomData, sync::Arc};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{Extensions, HeaderMap, header, request::Parts},
    middleware::Next,
    response::Response,
};
use base64::prelude::{BASE64_STANDARD, Engine};
use fence::{ResourceName, Token};

use super::{
    problem::Problem,
    request::{Name, Repeated, single},
    service::Service,
    terraform,
};
use crate::access::{Caller, Credentials, identity::Permission};

/// Identifies the client. Rejects it if it sends requests too often, or if the server must know it and
/// doesn't.
pub(super) async fn identify(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let caller = service.identify(request.headers(), request.extensions());
    service.admit(caller.as_ref(), request.extensions())?;
    let caller = caller.ok_or_else(Problem::unauthenticated)?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// The bearer token that a request was sent with (RFC 6750). Clients of Terraform's protocol can only
/// send it as a password (RFC 7617).
pub(super) fn credentials<'a>(headers: &'a HeaderMap, extensions: &Extensions) -> Credentials<'a> {
    let credentials = match single(headers, &header::AUTHORIZATION) {
        Ok(Some(credentials)) => credentials,
        Ok(None) => return Credentials::None,
        Err(Repeated) => return Credentials::Unusable,
    };
    match credentials.split_at_checked("Bearer ".len()) {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case(b"Bearer ") && !token.trim_ascii().is_empty() =>
        {
            Credentials::BearerToken(token.trim_ascii().into())
        }
        _ if terraform::is_route(extensions.get()) => match password(credentials) {
            Some(password) => Credentials::BearerToken(password.into()),
            None => Credentials::Unusable,
        },
        _ => Credentials::Unusable,
    }
}

/// The password of Basic authentication. The name of the user says nothing.
fn password(credentials: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = credentials.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let password = decoded[colon + 1..].to_vec();
    (!password.is_empty()).then_some(password)
}

/// The resource in the path, with which the caller may do what `P` says.
pub(super) struct Target<P> {
    pub(super) resource: ResourceName,
    /// The highest token that the caller may send with it.
    pub(super) ceiling: Token,
    permission: PhantomData<P>,
}

impl<P: Permitted> FromRequestParts<Arc<Service>> for Target<P> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        service: &Arc<Service>,
    ) -> Result<Self, Problem> {
        let Name(resource) = Name::from_request_parts(parts, service).await?;
        let caller = parts.extensions.get::<Caller>();
        let caller = caller.expect("the routes that have a target identify the client first");
        let ceiling = service.permit(caller, P::PERMISSION, resource.as_str())?;
        Ok(Self { resource, ceiling, permission: PhantomData })
    }
}

/// What a [`Target`] may be used for.
pub(super) trait Permitted {
    const PERMISSION: Permission;
}

/// To be read without a claim.
pub(super) struct Read;

/// To be written or deleted.
pub(super) struct Write;

/// To be claimed.
pub(super) struct Claim;

impl Permitted for Read {
    const PERMISSION: Permission = Permission::Read;
}

impl Permitted for Write {
    const PERMISSION: Permission = Permission::Write;
}

impl Permitted for Claim {
    const PERMISSION: Permission = Permission::Claim;
}
