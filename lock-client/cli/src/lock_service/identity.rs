//! What a lock service is known by to other processes: its identity, and the URLs that they use.

use std::{
    env, fmt, fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use lock_client::{
    Locks,
    redis::{self, has_password},
};
use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode,
};
use sqlx::{mysql::MySqlConnectOptions, postgres::PgConnectOptions};

use super::{postgres_hosts::postgres_hosts, service::Service};

impl Service<'_> {
    /// The servers, sorted, without users and passwords.
    pub(super) fn identity(&self, locks: &Locks) -> String {
        match self {
            Self::Redis(url) => redis_server(url),
            Self::Redlock(urls) => {
                sorted(urls.iter().map(|url| redis_server(url)).collect()).join(" ")
            }
            Self::Etcd(_) => {
                let address = locks.address();
                let members = address.trim_start_matches("etcd ").split(',').collect();
                format!("etcd://{}", sorted(members).join(","))
            }
            Self::ZooKeeper(_) => {
                let address = locks.address();
                let address = address.trim_start_matches("ZooKeeper ");
                let (members, root) = address.split_at(address.find('/').unwrap_or(address.len()));
                let members = sorted(members.split(',').collect()).join(",");
                format!("zookeeper://{members}{}", encoded(Path::new(root)))
            }
            Self::Postgres(url) => postgres_server(url),
            Self::MariaDb(url) => mariadb_server(url),
            Self::Sqlite(_) => {
                let address = locks.address();
                let file = address.trim_start_matches("sqlite:");
                match fs::canonicalize(file) {
                    Ok(path) => format!("sqlite:{}", encoded(&path)),
                    Err(_) => address,
                }
            }
        }
    }

    /// The URLs for a process within this one, which may have another working directory; `None` if one
    /// contains a password.
    pub(super) fn urls_without_password(&self) -> Option<String> {
        match self {
            Self::Redis(url) => (!has_password(url)).then(|| (*url).to_owned()),
            Self::Redlock(urls) => {
                (!urls.iter().any(|url| has_password(url))).then(|| urls.join(" "))
            }
            Self::Etcd(url) | Self::ZooKeeper(url) | Self::Postgres(url) | Self::MariaDb(url) => {
                (!may_have_password(url)).then(|| (*url).to_owned())
            }
            Self::Sqlite(url) => absolute(url),
        }
    }

    /// The hosts and ports of the servers; none of those on Unix sockets.
    pub(super) fn addresses(&self, locks: &Locks) -> Vec<String> {
        let identity = self.identity(locks);
        let urls = identity.split(' ').filter_map(|url| url.split_once("://"));
        let hosts = urls.filter_map(|(_, rest)| rest.split('/').next());
        let addresses = hosts.flat_map(|hosts| hosts.split(','));
        addresses.filter(|address| !address.is_empty()).map(str::to_owned).collect()
    }
}

/// Whether there is a password before an `@`, or in a setting.
fn may_have_password(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let (user, _) = rest.rsplit_once('@').unwrap_or_default();
    let (_, settings) = rest.split_once('?').unwrap_or_default();
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

/// What is encoded in a path. Its slashes stay.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

fn encoded(path: &Path) -> impl fmt::Display {
    percent_encode(path.as_os_str().as_bytes(), IN_PATH)
}

/// The database that a URL names, without the user and the password.
fn postgres_server(url: &str) -> String {
    let hosts = postgres_hosts(url).expect("the locks were opened by it");
    let options = hosts.options(0);
    let database = options.get_database().unwrap_or(options.get_username());
    if hosts.has_several() {
        let address = |options: &PgConnectOptions| match options.get_socket() {
            Some(folder) => {
                let folder = percent_encode(folder.as_os_str().as_bytes(), NON_ALPHANUMERIC);
                format!("{folder}:{}", options.get_port())
            }
            None => format!("{}:{}", options.get_host(), options.get_port()),
        };
        let hosts = sorted(hosts.iter().map(address).collect());
        return format!("postgres://{}/{database}", hosts.join(","));
    }
    let (host, port) = (options.get_host(), options.get_port());
    let folder = options.get_socket().map(PathBuf::as_path);
    match folder.or_else(|| host.starts_with('/').then(|| Path::new(host))) {
        Some(folder) => format!("postgres:///{database}?host={}&port={port}", encoded(folder)),
        None => format!("postgres://{host}:{port}/{database}"),
    }
}

fn mariadb_server(url: &str) -> String {
    let options: MySqlConnectOptions = url.parse().expect("the locks were opened by it");
    let database = options.get_database().unwrap_or_default();
    match options.get_socket() {
        Some(socket) => format!("mariadb:///{database}?socket={}", encoded(socket)),
        None => format!("mariadb://{}:{}/{database}", options.get_host(), options.get_port()),
    }
}

fn redis_server(url: &str) -> String {
    redis::identity(url).expect("the locks were opened by it")
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::{super::LockService, *};

    fn with_service<T>(urls: &str, work: impl FnOnce(&Service<'_>, &Locks) -> T) -> T {
        let named = LockService { locks: vec![urls.to_owned()], ..LockService::default() };
        let locks = named.locks().unwrap();
        work(&named.service().unwrap(), &locks)
    }

    #[test]
    fn identity_has_no_password_and_no_order() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().canonicalize().unwrap();
        let (url, file) =
            (format!("sqlite://{}?mode=rw", path.display()), format!("sqlite:{}", path.display()));
        for (urls, identity) in [
            ("redis://user:secret@host/3", "redis://host:6379/3"),
            ("rediss://:secret@host", "redis://host:6379/0"),
            ("redis+unix:///tmp/redis.sock?db=1&pass=secret", "redis+unix:///tmp/redis.sock?db=1"),
            ("redis+sentinel://u:secret@s2,s1:7/locks/3", "redis+sentinel://s1:7,s2:26379/locks/3"),
            ("redis+cluster://:secret@n1:7000,n2", "redis+cluster://n1:7000,n2:6379"),
            (
                "redis+sentinel://s1/l%6fcks?sentinel-password=secret&db=2",
                "redis+sentinel://s1:26379/locks/2",
            ),
            ("REDIS://host?db=3", "redis://host:6379/3"),
            ("valkey+unix:///tmp/a%20b?db=1&db=2", "redis+unix:///tmp/a%20b?db=2"),
            (
                "redis://n2 redis://:secret@n1 redis://n3",
                "redis://n1:6379/0 redis://n2:6379/0 redis://n3:6379/0",
            ),
            ("etcd://u:secret@n2,n1:7", "etcd://n1:7,n2:2379"),
            ("zookeeper://u:secret@n2,n1:7", "zookeeper://n1:7,n2:2181"),
            ("zookeeper://n2,n1/apps/b%20c/", "zookeeper://n1:2181,n2:2181/apps/b%20c"),
            ("postgres://u:secret@host/locks", "postgres://host:5432/locks"),
            (
                "postgres://u:secret@b,a:7/locks?target_session_attrs=read-write",
                "postgres://a:7,b:5432/locks",
            ),
            ("postgres://u@%2Frun%2Fb:1,a/locks", "postgres://%2Frun%2Fb:1,a:5432/locks"),
            (
                "postgres://u@h/locks?host=/run/p%20g&password=secret",
                "postgres:///locks?host=/run/p%20g&port=5432",
            ),
            ("mariadb://u@h/locks?socket=/run/my.sock", "mariadb:///locks?socket=/run/my.sock"),
            ("mariadb://u:secret@host/locks", "mariadb://host:3306/locks"),
            (&url, &file),
        ] {
            with_service(urls, |service, locks| {
                assert_eq!(service.identity(locks), identity, "{urls}");
            });
            // It can be passed back.
            with_service(identity, |service, locks| {
                assert_eq!(service.identity(locks), identity);
            });
        }
    }

    #[test]
    fn addresses_are_those_of_all_servers() {
        for (urls, addresses) in [
            ("redis://:secret@n2 rediss://n1 redis://n3:7", "n1:6379 n2:6379 n3:7"),
            ("redis+sentinel://s2:7,s1:7/locks", "s1:7 s2:7"),
            ("redis+unix:///tmp/redis.sock", ""),
            ("etcd://u:secret@n2,n1:7", "n1:7 n2:2379"),
            ("zookeepers://n1/apps", "n1:2181"),
            ("postgres://u:secret@host/locks", "host:5432"),
            ("postgres://u@h/locks?host=/run/pg", ""),
            ("mariadb://u@host:7/locks", "host:7"),
            ("mariadb://u@host/locks?socket=/run/mysqld.sock", ""),
            ("sqlite:locks.db", ""),
        ] {
            with_service(urls, |service, locks| {
                assert_eq!(service.addresses(locks).join(" "), addresses, "{urls}");
            });
        }
    }

    #[test]
    fn no_password_is_passed_on() {
        for urls in [
            "redis://:secret@n1",
            "redis://n1 redis://:secret@n2 redis://n3",
            "etcd://u:secret@n1,n2",
            "zookeeper://u:secret@n1,n2/apps",
            "postgres://u:secret@host/locks",
            "postgres://u@host/locks?password=secret",
            "postgres://u@host/locks?p%61ssword=secret",
            "mysql://u:sec%40ret@host/locks",
        ] {
            with_service(urls, |service, _| {
                assert_eq!(service.urls_without_password(), None, "{urls}");
            });
        }
        for urls in [
            "redis://n1",
            "redis://n1 redis://n2 redis://n3",
            "etcd://n1:2379,n2",
            "zookeeper://n1:2181,n2/apps",
            "postgres://u@host:5432/locks?sslrootcert=%2Fetc%2Fpass.pem",
            "mariadb://host/locks?socket=/run/a@b/mysqld.sock",
            "sqlite:/var/lib/a:b@c.db?mode=rwc",
        ] {
            with_service(urls, |service, _| {
                assert_eq!(service.urls_without_password().as_deref(), Some(urls));
            });
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
        for url in ["sqlite:///a/locks.db", "sqlite:////a/locks.db", "sqlite:/a/locks.db"] {
            assert_eq!(absolute(url).as_deref(), Some(url));
        }
    }
}
