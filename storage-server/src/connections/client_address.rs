//! The address of the client that sent a request.

use std::net::IpAddr;

use axum::http::Extensions;

/// The address of the client that sent a request, as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) IpAddr);

/// The address of the client that sent a request with these extensions.
pub(crate) fn client_address(extensions: &Extensions) -> IpAddr {
    extensions.get::<ClientAddress>().expect("each request comes on a connection").0
}
