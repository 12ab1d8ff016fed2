//! What a URL says to other processes: whether it has a password, and which servers it names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use redis::ConnectionAddr;

use super::url::{InvalidRedisUrl, RedisUrl, SENTINEL_PASSWORD, UrlKind};
use crate::service_url::addresses;
#[cfg(feature = "sentinel")]
use crate::service_url::decoded;

/// What is encoded in a path. Its slashes stay.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// Returns whether a URL contains a password. A URL that can't be used may contain one.
pub fn has_password(url: &str) -> bool {
    has_password_in(url).unwrap_or(true)
}

fn has_password_in(url: &str) -> Result<bool, InvalidRedisUrl> {
    let url = RedisUrl::parse(url)?;
    Ok(match url.kind {
        UrlKind::Socket => url.node()?.redis_settings().password().is_some(),
        _ => url.parts.user.is_some() || url.parts.settings.get(SENTINEL_PASSWORD).is_some(),
    })
}

/// Returns a URL that names the same server, or the same servers, in one form: sorted, and without the
/// user, the password and the certificates. Two clients exclude each other only if theirs are equal.
/// It does not say whether connections are encrypted.
///
/// # Errors
/// [`InvalidRedisUrl`] if the URL can't be used. No file is read.
pub fn identity(url: &str) -> Result<String, InvalidRedisUrl> {
    identity_of(url).map_err(|invalid| invalid.of(url))
}

fn identity_of(url: &str) -> Result<String, InvalidRedisUrl> {
    let url = RedisUrl::parse(url)?;
    Ok(match url.kind {
        UrlKind::Node => {
            let database = url.node()?.redis_settings().db();
            format!("redis://{}/{database}", addresses(&url.parts.members))
        }
        UrlKind::Socket => {
            let info = url.node()?;
            let ConnectionAddr::Unix(socket) = info.addr() else {
                return Err(InvalidRedisUrl::new("it names no socket"));
            };
            let socket = percent_encode(socket.as_os_str().as_encoded_bytes(), IN_PATH);
            format!("redis+unix://{socket}?db={}", info.redis_settings().db())
        }
        #[cfg(feature = "sentinel")]
        UrlKind::Sentinel => {
            let mut members = url.parts.members.clone();
            members.sort_unstable();
            let path = &url.parts.path;
            let (primary, database) = path.split_once('/').unwrap_or((path, ""));
            let (primary, database) = (decoded(primary)?, url.database(database)?);
            let primary = percent_encode(primary.as_bytes(), IN_PATH).to_string();
            format!("redis+sentinel://{}/{primary}/{database}", addresses(&members))
        }
        #[cfg(feature = "cluster")]
        UrlKind::Cluster => {
            let mut parts = url.parts;
            parts.members.sort_unstable();
            format!("redis+cluster://{}", addresses(&parts.members))
        }
        #[cfg(not(all(feature = "cluster", feature = "sentinel")))]
        _ => unreachable!("parse rejects URLs that need a missing feature"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_of_a_node_is_a_url() {
        for (url, identified) in [
            ("redis://u:p@[::1]/3", "redis://[::1]:6379/3"),
            ("redis://localhost?db=3", "redis://localhost:6379/3"),
            ("redis+unix:///tmp/a%20b?db=1", "redis+unix:///tmp/a%20b?db=1"),
        ] {
            assert_eq!(identity(url).unwrap(), identified);
            assert_eq!(identity(identified).unwrap(), identified);
        }
    }

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
}
