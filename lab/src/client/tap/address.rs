//! Where a client connects, as its setup says it.

use std::{path::PathBuf, str::FromStr};

use sqlx::postgres::PgConnectOptions;

use super::{Protocol, Server};

/// The only server of a URL.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) server: Server,
    pub(super) protocol: Protocol,
    /// What a reader needs to connect there.
    pub(super) name: String,
    /// What stands before the host and the port of a URL that leads to the tap.
    pub(super) scheme: String,
    /// What stands after them.
    pub(super) rest: String,
}

impl Address {
    /// Reads a URL. Returns `None` if it has several servers, a password or TLS, or is unknown.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let is_plain = |word: &str| !word.contains(['@', ',', '?', '/']) && word.contains(':');
        match scheme {
            "redis+unix" if !rest.contains('?') => Some(Self {
                server: Server::Socket(PathBuf::from(rest)),
                protocol: Protocol::Redis,
                name: rest.to_owned(),
                scheme: "redis://".to_owned(),
                rest: String::new(),
            }),
            "redis" if is_plain(rest) => Some(Self::port(rest, Protocol::Redis, scheme, rest)),
            "http" | "etcd" if is_plain(rest) => {
                Some(Self::port(rest, Protocol::Http, scheme, &format!("http://{rest}")))
            }
            "postgres" => Self::parse_postgres(url, rest),
            _ => None,
        }
    }

    fn port(server: &str, protocol: Protocol, scheme: &str, name: &str) -> Self {
        Self {
            server: Server::Port(server.to_owned()),
            protocol,
            name: name.to_owned(),
            scheme: format!("{scheme}://"),
            rest: String::new(),
        }
    }

    fn parse_postgres(url: &str, rest: &str) -> Option<Self> {
        let user = rest.split_once('@')?.0;
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        // Others are lost on the way, such as a password or a mode of TLS.
        let is_lost = |pair: &str| !pair.is_empty() && !pair.starts_with("host=");
        if user.contains(':') || rest.contains([',', '%']) || query.split('&').any(is_lost) {
            return None;
        }
        let options = PgConnectOptions::from_str(url).ok()?;
        let (port, database) = (options.get_port(), options.get_database()?);
        let server = match options.get_socket() {
            Some(folder) => Server::Socket(folder.join(format!(".s.PGSQL.{port}"))),
            None => Server::Port(format!("{}:{port}", options.get_host())),
        };
        Some(Self {
            server,
            protocol: Protocol::Postgres,
            name: url.to_owned(),
            scheme: format!("postgres://{user}@"),
            rest: format!("/{database}?sslmode=disable"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_server_without_password_and_tls_is_tapped() {
        for (url, name) in [
            ("redis+unix:///tmp/a/redis.sock", "/tmp/a/redis.sock"),
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("etcd://127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://127.0.0.1:8034", "http://127.0.0.1:8034"),
            (
                "postgres://postgres@localhost:5432/a?host=/tmp/b",
                "postgres://postgres@localhost:5432/a?host=/tmp/b",
            ),
        ] {
            assert_eq!(Address::parse(url).unwrap().name, name);
        }
        let socket = Address::parse("postgres://postgres@localhost:5432/a?host=/tmp/b").unwrap();
        assert!(matches!(socket.server, Server::Socket(path) if path.ends_with("b/.s.PGSQL.5432")));
        assert_eq!(socket.rest, "/a?sslmode=disable");
        for url in [
            "redis://:secret@127.0.0.1:6379",
            "rediss://127.0.0.1:6379",
            "etcd://127.0.0.1:1,127.0.0.1:2",
            "postgres://me:secret@127.0.0.1:5432/a",
            "postgres://me@127.0.0.1:1,127.0.0.1:2/a",
            "postgres://me@127.0.0.1:5432/a?password=secret",
            "postgres://me@127.0.0.1:5432/a?host=/tmp/b&sslmode=require",
            "zookeeper://127.0.0.1:2181",
            "https://127.0.0.1:8034",
        ] {
            assert!(Address::parse(url).is_none(), "{url}");
        }
    }
}
