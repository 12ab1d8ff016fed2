//! The etcd that a URL names: its members, the user, and the certificates.

use std::fmt;

use hyper::{
    Uri,
    http::uri::{Authority, PathAndQuery, Scheme},
};
use percent_encoding::percent_decode_str;

use crate::tls;

/// The port of a member that a URL names without one.
const DEFAULT_PORT: u16 = 2379;

/// An etcd. It displays as its members, without a password.
pub(super) struct Server {
    pub(super) members: Vec<Member>,
    pub(super) user: Option<User>,
    /// The certificates of encrypted connections; `None` if they are not encrypted.
    pub(super) certificates: Option<tls::Certificates>,
}

/// One member. It displays as host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    scheme: Scheme,
    address: Authority,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl Server {
    /// Parses a URL. Its form is that of [`Etcd::open`](super::Etcd::open).
    pub(super) fn parse(url: &str) -> Result<Self, InvalidEtcdUrl> {
        let (scheme, rest) = match url.split_once("://") {
            Some(("etcd", rest)) => (Scheme::HTTP, rest),
            Some(("etcds", rest)) => (Scheme::HTTPS, rest),
            _ => return Err(InvalidEtcdUrl::new("it does not begin with etcd:// or etcds://")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A file may have an @ in its name. Before the first setting, it is the end of a password,
        // which no error may show.
        if query.split('=').next().is_some_and(|name| name.contains('@')) {
            return Err(InvalidEtcdUrl::new("write %3F for the ? in the user or the password"));
        }
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(User::parse(user)?), hosts),
            None => (None, authority),
        };
        let members = hosts.split(',').map(|host| Member::parse(&scheme, host));
        let settings = tls::Settings::parse(query)?;
        let certificates = if scheme == Scheme::HTTPS {
            Some(tls::Certificates::read(settings)?)
        } else if settings == tls::Settings::default() {
            None
        } else {
            return Err(InvalidEtcdUrl::new("certificates are for etcds URLs"));
        };
        Ok(Self { members: members.collect::<Result<_, _>>()?, user, certificates })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("etcd ")?;
        for (number, member) in self.members.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{member}")?;
        }
        Ok(())
    }
}

impl Member {
    fn parse(scheme: &Scheme, host: &str) -> Result<Self, InvalidEtcdUrl> {
        if host.is_empty() {
            return Err(InvalidEtcdUrl::new("a host is missing"));
        }
        // The colons of an IPv6 address are inside brackets.
        let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let port = if has_port { String::new() } else { format!(":{DEFAULT_PORT}") };
        match format!("{host}{port}").parse::<Authority>() {
            Ok(address) if address.port_u16().is_some() && !address.host().is_empty() => {
                Ok(Self { scheme: scheme.clone(), address })
            }
            _ => Err(InvalidEtcdUrl::new(format!("`{host}` is no HOST or HOST:PORT"))),
        }
    }

    /// The URI of one of its methods, such as `kv/txn`.
    pub(super) fn method(&self, method: &str) -> Uri {
        let path = PathAndQuery::try_from(format!("/v3/{method}"));
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.address.clone());
        uri.path_and_query(path.expect("a method is a path")).build().expect("it has all parts")
    }

    /// Whether connections to it are encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl User {
    fn parse(user: &str) -> Result<Self, InvalidEtcdUrl> {
        let Some((name, password)) = user.split_once(':') else {
            return Err(InvalidEtcdUrl::new("a user is given without a password"));
        };
        Ok(Self { name: decoded(name)?, password: decoded(password)? })
    }
}

/// Replaces what is percent-encoded.
fn decoded(text: &str) -> Result<String, InvalidEtcdUrl> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| InvalidEtcdUrl::new("a part of it is not UTF-8"))?.into_owned())
}

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable etcd URL: {reason}")]
pub struct InvalidEtcdUrl {
    reason: String,
}

impl InvalidEtcdUrl {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl From<tls::InvalidSettings> for InvalidEtcdUrl {
    fn from(invalid: tls::InvalidSettings) -> Self {
        Self::new(invalid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (url, address) in [
            ("etcd://localhost", "etcd localhost:2379"),
            ("etcd://n1:1,n2,[::1],[::1]:5/", "etcd n1:1,n2:2379,[::1]:2379,[::1]:5"),
            ("etcds://u%40x:p%3A@n1", "etcd n1:2379"),
        ] {
            let server = Server::parse(url).map_err(|error| error.to_string()).unwrap();
            assert_eq!(server.to_string(), address, "without a password");
            assert_eq!(server.members[0].is_encrypted(), url.starts_with("etcds"));
        }
        let user =
            Server::parse("etcd://u%40x:p%3A@n1").ok().and_then(|server| server.user).unwrap();
        assert_eq!((user.name.as_str(), user.password.as_str()), ("u@x", "p:"));
        let member = &Server::parse("etcd://n1").ok().unwrap().members[0];
        assert_eq!(member.method("kv/txn").to_string(), "http://n1:2379/v3/kv/txn");
    }

    #[test]
    fn wrong_urls_are_rejected_with_the_reason() {
        for (url, reason) in [
            ("http://n1", "it does not begin with etcd:// or etcds://"),
            ("etcd://", "a host is missing"),
            ("etcd://n1,,n2", "a host is missing"),
            ("etcd://n1/path", "`n1/path` is no HOST"),
            ("etcd://n1:port", "`n1:port` is no HOST"),
            ("etcd://user@n1", "without a password"),
            ("etcd://n1?tls-ca=/ca.pem", "certificates are for etcds URLs"),
            ("etcds://n1?tls-ca=/no/such/file", "tls-ca: can't read /no/such/file"),
            ("etcds://n1?tls-ca=/dev/null", "tls-ca: /dev/null has no certificate"),
            ("etcds://n1?tls-key=/dev/null", "tls-cert and tls-key belong together"),
            (
                "etcds://n1?tls=x",
                "`tls` is no setting here; the settings are tls-ca, tls-cert and tls-key",
            ),
            ("etcd://n1?db=3", "`db` is no setting here"),
            ("etcds://n1?TLS-CA=/ca.pem", "`TLS-CA` is no setting here"),
            ("etcds://n1?tls-ca=/a&tls-ca=/b", "`tls-ca` is given twice"),
            ("etcd://u:secret?x@n1", "write %3F for the ?"),
            ("etcd://u:secret?@n1", "write %3F for the ?"),
        ] {
            let error = Server::parse(url).err().expect(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
