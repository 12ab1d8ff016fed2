//! Who may use the page: its own origin, and for control those who know its token.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;

/// The names under which the page is served, and the token that controls it.
#[derive(Clone, Debug)]
pub(super) struct Access {
    hosts: Arc<[String; 2]>,
    token: Arc<str>,
}

impl Access {
    /// Access to a page at this address, with a new random token.
    pub(super) fn new(address: SocketAddr) -> Self {
        let hosts = [address.to_string(), format!("localhost:{}", address.port())];
        let token = format!("{:032x}", rand::random::<u128>());
        Self { hosts: Arc::new(hosts), token: token.into() }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Whether a request comes from the page itself, and not from another site (DNS rebinding).
    fn is_own(&self, headers: &HeaderMap) -> bool {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let is_host = |host: &str| self.hosts.iter().any(|own| own == host);
        text(header::HOST).is_some_and(is_host)
            && text(header::ORIGIN)
                .is_none_or(|origin| origin.strip_prefix("http://").is_some_and(is_host))
    }

    fn has_token(&self, request: &Request) -> bool {
        let value = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let offered = value.and_then(|value| value.strip_prefix(b"Bearer "));
        // A browser sends no header of the page's own when it opens a stream of events.
        let in_query = request.uri().query().and_then(|query| query.strip_prefix("token="));
        offered
            .or(in_query.map(str::as_bytes))
            .is_some_and(|offered| offered.ct_eq(self.token.as_bytes()).into())
    }
}

/// Rejects requests of other sites.
pub(super) async fn from_the_page(
    State(access): State<Access>,
    request: Request,
    next: Next,
) -> Response {
    if access.is_own(request.headers()) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "this page answers only itself\n").into_response()
    }
}

/// Rejects requests without the token.
pub(super) async fn with_the_token(
    State(access): State<Access>,
    request: Request,
    next: Next,
) -> Response {
    if access.has_token(&request) {
        next.run(request).await
    } else {
        let what_to_do = "open the address that `lab serve` printed: it has the token\n";
        (StatusCode::UNAUTHORIZED, what_to_do).into_response()
    }
}
