//! The URLs of Redis, as far as they name several servers or need a feature of this crate.

use std::{error::Error, fmt};

use redis::{IntoConnectionInfo, RedisConnectionInfo, RedisError};

use super::query::Query;

/// The setting with the password of the Sentinels.
pub(super) const SENTINEL_PASSWORD: &str = "sentinel-password";

/// The URL can't be used.
#[derive(Debug)]
pub struct InvalidRedisUrl {
    /// The URL without a password.
    url: String,
    reason: String,
}

impl fmt::Display for InvalidRedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a usable Redis URL: {}", self.url, self.reason)
    }
}

impl Error for InvalidRedisUrl {}

impl InvalidRedisUrl {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { url: String::new(), reason: reason.into() }
    }

    /// Names the URL, without its password.
    pub(super) fn of(self, url: &str) -> Self {
        Self { url: without_password(url), ..self }
    }

    #[cfg(any(feature = "cluster", feature = "sentinel"))]
    pub(super) fn unknown_setting(name: &str) -> Self {
        Self::new(format!("`{name}` is no setting here"))
    }

    pub(super) fn user_without_password() -> Self {
        Self::new("a user is given without a password")
    }

    fn needs_feature(url: &str, feature: &str) -> Self {
        Self::new(format!("{url} URLs need the feature `{feature}` of the crate lock-client"))
    }
}

impl From<RedisError> for InvalidRedisUrl {
    fn from(error: RedisError) -> Self {
        // The `redis` crate puts the name of a constant into its text.
        Self::new(error.to_string().replace(&format!(" - {:?}", error.kind()), ""))
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

/// Fails if a user is given without a password: the `redis` crate would connect as the default user.
pub(super) fn check_user(settings: &RedisConnectionInfo) -> Result<(), InvalidRedisUrl> {
    match (settings.username(), settings.password()) {
        (Some(_), None) => Err(InvalidRedisUrl::user_without_password()),
        _ => Ok(()),
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

/// Returns a URL without what may be a password. A URL that can't be parsed may have one anywhere:
/// it is cut where no port follows a colon.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + 3));
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let mut end = 0;
    for host in authority.split_inclusive(',') {
        // The colons of an IPv6 address are inside brackets.
        let address = host.rfind(']').unwrap_or(0);
        if let Some(colon) = host[address..].find(':').map(|colon| address + colon) {
            let port = host[colon + 1..].trim_end_matches(',');
            if !port.bytes().all(|digit| digit.is_ascii_digit()) {
                return format!("{scheme}{}…", &authority[..=end + colon]);
            }
        }
        end += host.len();
    }
    format!("{scheme}{rest}")
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
            ("redis://user@localhost", "a user is given without a password"),
            ("redis+unix:///redis.sock?user=u", "a user is given without a password"),
            #[cfg(feature = "sentinel")]
            ("redis+sentinel://user@s1/locks", "a user is given without a password"),
            #[cfg(feature = "sentinel")]
            ("redis+sentinel://s1/locks?sentinel-user=u", "a user is given without a password"),
            #[cfg(feature = "cluster")]
            ("redis+cluster://user@n1", "a user is given without a password"),
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
    fn wrong_url_is_named_without_its_password() {
        for (url, named) in [
            ("localhost:6379", "localhost:6379"),
            ("redis://", "redis://"),
            ("redis://user:secret@[::1]:99999/3", "redis://[::1]:99999/3"),
            ("redis://:se/cr?e@t@localhost/x", "redis://localhost/x"),
            ("redis://:secret", "redis://:…"),
            ("redis://host:6379,host:secret/x", "redis://host:6379,host:…"),
            ("redis://host:secret/secret", "redis://host:…"),
            ("redis://host/x?pass=secret", "redis://host/x"),
        ] {
            let error = Server::open(url).expect_err("the URL is rejected").to_string();
            assert!(
                error.starts_with(&format!("`{named}` is not a usable Redis URL: ")),
                "{error}"
            );
            assert!(!error.contains("InvalidClientConfig"), "{error}");
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
