//! The URLs of Redis, as far as they name several servers or need a feature of this crate.

use std::{error::Error, fmt};

use redis::{IntoConnectionInfo, RedisError};

use super::query::Query;

/// The setting with the password of the Sentinels.
pub(super) const SENTINEL_PASSWORD: &str = "sentinel-password";

/// The URL can't be used.
#[derive(Debug)]
pub struct InvalidRedisUrl {
    reason: String,
}

impl fmt::Display for InvalidRedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a usable Redis URL: {}", self.reason)
    }
}

impl Error for InvalidRedisUrl {}

impl InvalidRedisUrl {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }

    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(super) fn unknown_setting(name: &str) -> Self {
        Self::new(format!("`{name}` is no setting here"))
    }

    fn needs_feature(url: &str, feature: &str) -> Self {
        Self::new(format!("{url} URLs need the feature `{feature}` of the crate lock-client"))
    }
}

impl From<RedisError> for InvalidRedisUrl {
    fn from(error: RedisError) -> Self {
        Self::new(error.to_string())
    }
}

/// A URL, split at its scheme.
pub(super) struct RedisUrl<'a> {
    pub(super) kind: UrlKind,
    /// The scheme of one node: `redis`, or `rediss` for an encrypted connection.
    pub(super) node_scheme: &'static str,
    /// What is between `://` and the query.
    pub(super) rest: &'a str,
    pub(super) query: Query,
}

/// The kind of server that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlKind {
    /// One node. The `redis` crate parses the URL.
    Node,
    /// Several Sentinels.
    Sentinel,
    /// Several nodes of a Cluster.
    Cluster,
}

const SCHEMES: [(&str, UrlKind, &str); 5] = [
    ("redis+sentinel", UrlKind::Sentinel, "redis"),
    ("rediss+sentinel", UrlKind::Sentinel, "rediss"),
    ("redis+cluster", UrlKind::Cluster, "redis"),
    ("rediss+cluster", UrlKind::Cluster, "rediss"),
    ("rediss", UrlKind::Node, "rediss"),
];

impl<'a> RedisUrl<'a> {
    /// Splits a URL.
    ///
    /// # Errors
    /// [`InvalidRedisUrl`] if its scheme needs a feature that was not compiled.
    pub(super) fn parse(url: &'a str) -> Result<Self, InvalidRedisUrl> {
        let url = Self::split(url);
        match url.kind {
            UrlKind::Sentinel if !cfg!(feature = "sentinel") => {
                Err(InvalidRedisUrl::needs_feature("Sentinel", "sentinel"))
            }
            UrlKind::Cluster if !cfg!(feature = "cluster") => {
                Err(InvalidRedisUrl::needs_feature("Cluster", "cluster"))
            }
            _ if url.node_scheme == "rediss" && !cfg!(feature = "tls") => {
                Err(InvalidRedisUrl::needs_feature("rediss", "tls"))
            }
            _ => Ok(url),
        }
    }

    fn split(url: &'a str) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let known = SCHEMES.into_iter().find(|(known, ..)| *known == scheme);
        let (_, kind, node_scheme) = known.unwrap_or(("redis", UrlKind::Node, "redis"));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        Self { kind, node_scheme, rest, query: Query::parse(query) }
    }
}

/// Returns whether a URL contains a password. A URL that can't be parsed may contain one.
pub fn has_password(url: &str) -> bool {
    let RedisUrl { kind, rest, query, .. } = RedisUrl::split(url);
    match kind {
        UrlKind::Node => url
            .into_connection_info()
            .map_or(true, |info| info.redis_settings().password().is_some()),
        UrlKind::Sentinel | UrlKind::Cluster => {
            let authority = rest.split('/').next().unwrap_or_default();
            authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
                || query.get(SENTINEL_PASSWORD).is_some()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Server, *};

    #[test]
    fn passwords_are_found_in_urls_of_every_kind() {
        for url in [
            "redis://:secret@localhost",
            "redis://user:secret@localhost:6380/3",
            #[cfg(feature = "tls")]
            "rediss://user:secret@localhost:6380/3",
            "redis+unix:///tmp/redis.sock?db=1&pass=secret",
            "redis+unix:///tmp/redis.sock?p%61ss=secret",
            "redis+sentinel://u:secret@s1,s2/locks",
            "redis+sentinel://s1,s2/locks?sentinel-password=secret",
            "redis+cluster://:secret@n1:7000,n2",
            "what may be a secret",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "redis://localhost:6379/3",
            "redis+unix:///tmp/a:b@c/redis.sock?db=1",
            "redis+sentinel://s1:26379,s2/locks/3?sentinel-user=u",
            "rediss+cluster://n1:7000,n2?tls-key=/etc/redis/client.key",
            #[cfg(feature = "tls")]
            "rediss://n1:7000?tls-cert=/c.pem&tls-key=/c.key",
            "rediss+cluster://n1:7000,[::1]:7001",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_rejected_with_the_reason() {
        for (url, reason) in [
            ("nonsense", "not a usable Redis URL"),
            ("http://localhost", "not a usable Redis URL"),
            ("redis://localhost?tls-ca=/ca.pem", "certificates are for rediss URLs"),
            #[cfg(feature = "tls")]
            ("rediss://localhost?tls-ca=/no/such/file", "tls-ca: can't read /no/such/file"),
            #[cfg(feature = "tls")]
            ("rediss://localhost?tls-key=/dev/null", "tls-cert and tls-key belong together"),
            #[cfg(feature = "sentinel")]
            ("redis+sentinel://s1/locks?sentinel-pass=x", "`sentinel-pass` is no setting here"),
            #[cfg(feature = "cluster")]
            ("redis+cluster://n1?sentinel-password=x", "`sentinel-password` is no setting here"),
        ] {
            let error = Server::open(url).expect_err("the URL is rejected").to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn url_that_needs_a_missing_feature_names_it() {
        for (url, feature, compiled) in [
            ("redis+sentinel://s1/locks", "`sentinel`", cfg!(feature = "sentinel")),
            ("redis+cluster://n1", "`cluster`", cfg!(feature = "cluster")),
            ("rediss://localhost", "`tls`", cfg!(feature = "tls")),
        ] {
            match Server::open(url) {
                Ok(_) => assert!(compiled, "{url}"),
                Err(error) => {
                    assert!(!compiled && error.to_string().contains(feature), "{url}: {error}");
                }
            }
        }
    }
}
