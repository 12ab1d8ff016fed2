//! The check of the name in `Host`.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{header, uri::Authority},
    middleware::Next,
    response::Response,
};

use super::problem::Problem;

/// Rejects a request that is not for `localhost` or a loopback address.
///
/// A page on the web may let its own name resolve to 127.0.0.1 (DNS rebinding). The browser then takes
/// this server for the page's own, and lets the page read and write here. Its requests still have the
/// page's name. A request without any name comes from no browser.
pub(super) async fn require_loopback_name(
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let in_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let in_headers = request.headers().get_all(header::HOST).iter().map(|host| host.as_bytes());
    let mut names = in_target.into_iter().chain(in_headers);
    let Some(wrong) = names.find(|name| !is_loopback(name)) else {
        return Ok(next.run(request).await);
    };
    Err(Problem::wrong_host(&String::from_utf8_lossy(wrong)))
}

/// Whether a name, which may have a port, is this machine's own.
fn is_loopback(name: &[u8]) -> bool {
    Authority::try_from(name).is_ok_and(|authority| {
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.to_canonical().is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for name in
            ["localhost", "LocalHost:8034", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:8034"]
        {
            assert!(is_loopback(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "evil.example:8034",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "192.0.2.1",
            "0.0.0.0",
            "[2001:db8::1]",
            "localhost evil.example",
            "\u{ff}",
        ] {
            assert!(!is_loopback(name.as_bytes()), "{name}");
        }
    }
}
