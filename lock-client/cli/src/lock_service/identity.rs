//! What a lock service is known by to other processes: its identity, and the URLs that they use.

use std::{env, fmt, fs, os::unix::ffi::OsStrExt, path::Path};

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
        let addresses =
            addresses.filter(|address| !address.is_empty() && !address.starts_with('%'));
        addresses.map(str::to_owned).collect()
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
    let first = hosts.options(0);
    let database = first.get_database().unwrap_or(first.get_username());
    let address = |options: &PgConnectOptions| {
        let host = match options.get_socket() {
            Some(folder) => folder.as_os_str().as_bytes(),
            None => options.get_host().as_bytes(),
        };
        let socket = host.starts_with(b"/");
        let socket = socket.then(|| percent_encode(host, NON_ALPHANUMERIC).to_string());
        let host = socket.unwrap_or_else(|| bracketed(options.get_host()));
        format!("{host}:{}", options.get_port())
    };
    let addresses = sorted(hosts.iter().map(address).collect());
    format!("postgres://{}/{database}", addresses.join(","))
}

fn mariadb_server(url: &str) -> String {
    let options: MySqlConnectOptions = url.parse().expect("the locks were opened by it");
    let database = options.get_database().unwrap_or_default();
    match options.get_socket() {
        Some(socket) => format!("mariadb:///{database}?socket={}", encoded(socket)),
        None => {
            format!("mariadb://{}:{}/{database}", bracketed(options.get_host()), options.get_port())
        }
    }
}

/// A host as a URL has it: an address of IPv6 in brackets.
fn bracketed(host: &str) -> String {
    let is_bare = host.contains(':') && !host.starts_with('[');
    if is_bare { format!("[{host}]") } else { host.to_owned() }
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
        for (urls, identity, addresses) in [
            ("redis://user:secret@host/3", "redis://host:6379/3", "host:6379"),
            ("REDIS://[::1]?db=3", "redis://[::1]:6379/3", "[::1]:6379"),
            ("valkey+unix:///tmp/a%20b?db=1&pass=secret&db=2", "redis+unix:///tmp/a%20b?db=2", ""),
            (
                "redis+sentinel://u:secret@s2,s1:7/l%6fcks?sentinel-password=secret&db=2",
                "redis+sentinel://s1:7,s2:26379/locks/2",
                "s1:7 s2:26379",
            ),
            (
                "redis+cluster://:secret@n1:7000,n2",
                "redis+cluster://n1:7000,n2:6379",
                "n1:7000 n2:6379",
            ),
            (
                "redis://n2 rediss://:secret@n1 redis://n3:7",
                "redis://n1:6379/0 redis://n2:6379/0 redis://n3:7/0",
                "n1:6379 n2:6379 n3:7",
            ),
            ("etcd://u:secret@n2,[::1]:7", "etcd://[::1]:7,n2:2379", "[::1]:7 n2:2379"),
            (
                "zookeeper://u:secret@n2,[::1]/apps/b%20c/",
                "zookeeper://[::1]:2181,n2:2181/apps/b%20c",
                "[::1]:2181 n2:2181",
            ),
            (
                "postgres://u:secret@b,a:7,[::1]/locks?target_session_attrs=read-write",
                "postgres://[::1]:5432,a:7,b:5432/locks",
                "[::1]:5432 a:7 b:5432",
            ),
            (
                "postgres://u@h/locks?host=/run/p%20g&password=secret",
                "postgres://%2Frun%2Fp%20g:5432/locks",
                "",
            ),
            ("mariadb://u@h/locks?socket=/run/my.sock", "mariadb:///locks?socket=/run/my.sock", ""),
            ("mariadb://u:secret@[::1]/locks", "mariadb://[::1]:3306/locks", "[::1]:3306"),
            (&url, &file, ""),
        ] {
            with_service(urls, |service, locks| {
                assert_eq!(service.identity(locks), identity, "{urls}");
                assert_eq!(service.addresses(locks).join(" "), addresses, "{urls}");
            });
            // It can be passed back.
            with_service(identity, |service, locks| {
                assert_eq!(service.identity(locks), identity);
            });
        }
    }

    #[test]
    fn no_password_is_passed_on() {
        for (urls, is_passed_on) in [
            ("redis://:secret@n1", false),
            ("redis://n1 redis://:secret@n2 redis://n3", false),
            ("etcd://u:secret@n1,n2", false),
            ("zookeeper://u:secret@n1,n2/apps", false),
            ("postgres://u@host/locks?p%61ssword=secret", false),
            ("mysql://u:sec%40ret@host/locks", false),
            ("redis://n1 redis://n2 redis://n3", true),
            ("etcd://n1:2379,n2", true),
            ("zookeeper://n1:2181,n2/apps", true),
            ("postgres://u@host:5432/locks?sslrootcert=%2Fetc%2Fpass.pem", true),
            ("mariadb://host/locks?socket=/run/a@b/mysqld.sock", true),
            ("sqlite:/var/lib/a:b@c.db?mode=rwc", true),
        ] {
            let expected = is_passed_on.then_some(urls);
            with_service(urls, |service, _| {
                assert_eq!(service.urls_without_password().as_deref(), expected);
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
        for url in ["sqlite:////a/locks.db", "sqlite:/a/locks.db"] {
            assert_eq!(absolute(url).as_deref(), Some(url));
        }
    }
}
