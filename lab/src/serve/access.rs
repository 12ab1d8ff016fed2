//! Who may use the page: its own origin, and for control those who know its token.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;
use subtle::ConstantTimeEq;

const HTTP_PORT: u16 = 80;

/// The names under which the page is served, and the token that controls it.
#[derive(Clone, Debug)]
pub(super) struct Access {
    hosts: Arc<[String]>,
    token: Arc<str>,
}

impl Access {
    /// Access to a page at this address, with a new random token.
    pub(super) fn new(address: SocketAddr) -> Self {
        let mut hosts = vec![address.to_string(), format!("localhost:{}", address.port())];
        // Browsers leave out the port of HTTP.
        if address.port() == HTTP_PORT {
            let without_port = hosts.iter().filter_map(|host| host.strip_suffix(":80"));
            hosts.extend(without_port.map(str::to_owned).collect::<Vec<_>>());
        }
        let token = format!("{:032x}", rand::random::<u128>());
        Self { hosts: hosts.into(), token: token.into() }
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
        value
            .and_then(|value| value.strip_prefix(b"Bearer "))
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
        let detail = "open the address that `lab serve` printed: it has the token";
        let rejection = Json(json!({"rejected": "no-token", "detail": detail}));
        (StatusCode::UNAUTHORIZED, rejection).into_response()
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn port_of_http_may_be_left_out_and_no_other() {
        for (address, host, is_own) in [
            ("127.0.0.1:80", "127.0.0.1", true),
            ("127.0.0.1:80", "localhost", true),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("[::1]:80", "[::1]", true),
            ("127.0.0.1:80", "attacker.example", false),
            ("127.0.0.1:8080", "127.0.0.1", false),
            ("127.0.0.1:8080", "127.0.0.1:80", false),
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
        ] {
            let access = Access::new(address.parse().unwrap());
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(access.is_own(&headers), is_own, "{address}: {host}");
            let origin = HeaderValue::from_str(&format!("http://{host}")).unwrap();
            headers.insert(header::ORIGIN, origin);
            assert_eq!(access.is_own(&headers), is_own, "{address}: {host}");
        }
    }
}
