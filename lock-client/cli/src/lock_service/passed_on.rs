//! The URLs of the lock service that are passed on to commands within this one.

use std::{env, path::Path};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::service::Service;

impl Service<'_> {
    /// The URLs for a process within this one, which may have another working directory; `None` if one
    /// contains a password.
    pub(super) fn urls_without_password(&self) -> Option<String> {
        match self {
            Self::Sqlite(url) => absolute(url),
            Self::Redlock(urls) => {
                (!urls.iter().any(|url| may_have_password(url))).then(|| urls.join(" "))
            }
            Self::Redis(url)
            | Self::Etcd(url)
            | Self::ZooKeeper(url)
            | Self::Postgres(url)
            | Self::MariaDb(url) => (!may_have_password(url)).then(|| (*url).to_owned()),
        }
    }
}

/// Whether there is a password before an `@`, or in a setting.
fn may_have_password(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let (location, settings) = rest.split_once('?').unwrap_or((rest, ""));
    // A path follows at once where there is no server.
    let authority = if location.starts_with('/') { "" } else { location };
    let (user, _) = authority.rsplit_once('@').unwrap_or_default();
    let names = settings.split('&').filter_map(|setting| setting.split('=').next());
    let mut names = names.map(|name| percent_decode_str(name).decode_utf8_lossy());
    user.contains(':') || names.any(|name| name.contains("pass"))
}

/// The URL of an SQLite file, from the root; `None` if no URL names the present folder.
fn absolute(url: &str) -> Option<String> {
    let file = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:"))?;
    if Path::new(file).is_absolute() {
        return Some(url.to_owned());
    }
    let folder = env::current_dir().ok()?;
    let encoded =
        folder.to_str()?.split('/').map(|part| utf8_percent_encode(part, NON_ALPHANUMERIC));
    let folder = encoded.map(|part| part.to_string()).collect::<Vec<_>>().join("/");
    Some(format!("sqlite:{folder}/{file}"))
}

#[cfg(test)]
mod tests {
    use super::{super::LockService, *};

    #[test]
    fn no_password_is_passed_on() {
        for (urls, is_passed_on) in [
            ("redis://:secret@n1", false),
            ("redis://n1 redis://:secret@n2 redis://n3", false),
            ("redis+unix:///tmp/redis.sock?db=1&pass=secret", false),
            ("redis+sentinel://s1,s2/locks?sentinel-password=secret", false),
            ("redis+cluster://:secret@n1:7000,n2", false),
            ("etcd://u:secret@n1,n2", false),
            ("zookeeper://u:secret@n1,n2/apps", false),
            ("postgres://u@host/locks?p%61ssword=secret", false),
            ("mysql://u:sec%40ret@host/locks", false),
            ("redis://n1 redis://n2 redis://n3", true),
            ("redis+unix:///tmp/a:b@c/redis.sock?db=1", true),
            ("rediss://h:6380?tls-key=/a@b.pem", true),
            ("redis+sentinel://s1:26379,s2/locks/3?sentinel-user=u", true),
            ("rediss+cluster://n1:7000,[::1]:7001?tls-key=/etc/client.key", true),
            ("etcd://n1:2379,n2", true),
            ("zookeeper://n1:2181,n2/apps", true),
            ("postgres://u@host:5432/locks?sslrootcert=%2Fetc%2Fpass.pem", true),
            ("mariadb://host/locks?socket=/run/a@b/mysqld.sock", true),
            ("sqlite:/var/lib/a:b@c.db?mode=rwc", true),
        ] {
            let expected = is_passed_on.then_some(urls);
            let named = LockService { locks: vec![urls.to_owned()], ..LockService::default() };
            assert_eq!(named.urls_without_password().as_deref(), expected);
        }
    }

    #[test]
    fn file_is_passed_on_from_the_root() {
        let folder = env::current_dir().unwrap();
        let passed_on = absolute("sqlite://a/locks.db?mode=rw").unwrap();
        let encoded = passed_on.strip_prefix("sqlite:").unwrap();
        let decoded = percent_decode_str(encoded).decode_utf8().unwrap();
        assert_eq!(decoded, format!("{}/a/locks.db?mode=rw", folder.display()));
        assert!(!encoded.contains(' '), "spaces separate URLs");
        for url in ["sqlite:////a/locks.db", "sqlite:/a/locks.db"] {
            assert_eq!(absolute(url).as_deref(), Some(url));
        }
    }
}
