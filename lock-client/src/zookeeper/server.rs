//! The ZooKeeper that a URL names: its members, the user, and the node that is the root.

use std::fmt;

use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;

use crate::tls::{self, Certificates};

/// The port of a member that a URL names without one.
const DEFAULT_PORT: u16 = 2181;

/// A ZooKeeper. It displays as its members, without a password.
pub(super) struct Server {
    pub(super) members: Vec<Member>,
    pub(super) user: Option<User>,
    /// The path of the node that is the root for this client; empty for the root itself.
    pub(super) root: String,
    /// What encrypts the connections, if they are encrypted.
    pub(super) tls: Option<Certificates>,
}

/// One member. It displays as host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
}

/// A user, who is known by a digest of both parts.
pub(super) struct User {
    name: String,
    password: String,
}

impl Server {
    /// Parses a URL. Its form is that of [`ZooKeeper::open`](super::ZooKeeper::open).
    pub(super) fn parse(url: &str) -> Result<Self, InvalidZooKeeperUrl> {
        let invalid = |reason: &str| InvalidZooKeeperUrl::new(reason);
        let (is_encrypted, rest) = match url.split_once("://") {
            Some(("zookeeper", rest)) => (false, rest),
            Some(("zookeepers", rest)) => (true, rest),
            _ => return Err(invalid("it does not begin with zookeeper:// or zookeepers://")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A file may have an @ in its name. Before the first setting, it is the end of a password,
        // which no error may show.
        if query.split('=').next().is_some_and(|name| name.contains('@')) {
            return Err(invalid("write %3F for the ? in the user or the password"));
        }
        let (authority, path) = match rest.split_once('/') {
            Some((_, path)) if path.contains('@') => {
                return Err(invalid("write %2F for a / in the user or the password"));
            }
            Some((authority, path)) => (authority, path),
            None => (rest, ""),
        };
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(User::parse(user)?), hosts),
            None => (None, authority),
        };
        let members: Vec<_> = hosts.split(',').map(Member::parse).collect::<Result<_, _>>()?;
        let settings = tls::Settings::parse(query)?;
        let tls = if is_encrypted {
            if let Some(member) = members.iter().find(|member| !member.can_be_certified()) {
                return Err(invalid(&format!("no certificate can be for `{member}`")));
            }
            Some(Certificates::read(settings)?)
        } else if settings == tls::Settings::default() {
            None
        } else {
            return Err(invalid("certificates are for zookeepers URLs"));
        };
        Ok(Self { members, user, root: root(path)?, tls })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZooKeeper ")?;
        for (number, member) in self.members.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{member}")?;
        }
        f.write_str(&self.root)
    }
}

impl Member {
    fn parse(member: &str) -> Result<Self, InvalidZooKeeperUrl> {
        let invalid = || {
            let shown = shown(member);
            InvalidZooKeeperUrl::new(format!("`{shown}` is no HOST or HOST:PORT"))
        };
        // The colons of an IPv6 address are inside brackets.
        let (host, port) = match member.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(invalid)?,
            None => member.split_at(member.find(':').unwrap_or(member.len())),
        };
        if member.is_empty() {
            return Err(InvalidZooKeeperUrl::new("a host is missing"));
        }
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or_else(invalid)?,
            None if port.is_empty() => DEFAULT_PORT,
            None => return Err(invalid()),
        };
        let is_name = |host: &str| {
            !host.is_empty()
                && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c))
        };
        match is_name(host) {
            true => Ok(Self { host: host.to_owned(), port }),
            false => Err(invalid()),
        }
    }
}

impl Member {
    /// Whether the host is a name or an address that a certificate can have.
    fn can_be_certified(&self) -> bool {
        ServerName::try_from(self.host.as_str()).is_ok()
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl User {
    fn parse(user: &str) -> Result<Self, InvalidZooKeeperUrl> {
        let Some((name, password)) = user.split_once(':') else {
            return Err(InvalidZooKeeperUrl::new("a user is given without a password"));
        };
        let user = Self { name: decoded(name)?, password: decoded(password)? };
        match user.name.is_empty() || user.name.contains(':') {
            true => Err(InvalidZooKeeperUrl::new("a user's name is empty or has a colon")),
            false => Ok(user),
        }
    }

    /// The user as a login sends it.
    pub(super) fn credentials(&self) -> String {
        format!("{}:{}", self.name, self.password)
    }
}

/// Returns what an error shows of a member. Without an `@`, a user's password looks like a port.
fn shown(member: &str) -> String {
    match member.split_once(':') {
        Some((host, port))
            if !host.starts_with('[') && !port.chars().all(|c| c.is_ascii_digit()) =>
        {
            format!("{host}:…")
        }
        _ => member.to_owned(),
    }
}

/// Parses the path of a URL, without its first slash.
fn root(path: &str) -> Result<String, InvalidZooKeeperUrl> {
    let path = decoded(path.strip_suffix('/').unwrap_or(path))?;
    if path.is_empty() {
        return Ok(path);
    }
    let is_allowed = |c: char| !c.is_control() && !('\u{e000}'..='\u{ffff}').contains(&c);
    let is_segment = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.chars().all(|c| is_allowed(c) && c <= '\u{ffff}')
    };
    match path.split('/').all(is_segment) {
        true => Ok(format!("/{path}")),
        false => Err(InvalidZooKeeperUrl::new(format!("`/{path}` is no path of a node"))),
    }
}

/// Replaces what is percent-encoded.
fn decoded(text: &str) -> Result<String, InvalidZooKeeperUrl> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| InvalidZooKeeperUrl::new("a part of it is not UTF-8"))?.into_owned())
}

/// The URL can't be used.
#[derive(Debug, thiserror::Error)]
#[error("not a usable ZooKeeper URL: {reason}")]
pub struct InvalidZooKeeperUrl {
    reason: String,
}

impl InvalidZooKeeperUrl {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl From<tls::InvalidSettings> for InvalidZooKeeperUrl {
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
            ("zookeeper://localhost", "ZooKeeper localhost:2181"),
            ("zookeeper://n1:1,n2,[::1],[::1]:5/", "ZooKeeper n1:1,n2:2181,[::1]:2181,[::1]:5"),
            ("zookeeper://u%40x:p%3A%2F@n1/a/b%20c", "ZooKeeper n1:2181/a/b c"),
        ] {
            assert_eq!(
                Server::parse(url).map_err(|error| error.to_string()).unwrap().to_string(),
                address,
                "without a password"
            );
        }
        let server = Server::parse("zookeeper://u%40x:p%3A%2F@n1/a/").ok().unwrap();
        assert_eq!(server.root, "/a");
        assert_eq!(server.user.unwrap().credentials(), "u@x:p:/");
    }

    #[test]
    fn wrong_urls_are_rejected_with_the_reason() {
        for (url, reason) in [
            ("http://n1", "it does not begin with zookeeper:// or zookeepers://"),
            ("zookeeper://", "a host is missing"),
            ("zookeeper://n1,,n2", "a host is missing"),
            ("zookeeper://n1:port", "`n1:…` is no HOST"),
            ("zookeeper://user:secret", "`user:…` is no HOST"),
            ("zookeeper://n1,user:1:secret/a", "`user:…` is no HOST"),
            ("zookeeper://n1:0", "`n1:0` is no HOST"),
            ("zookeeper://n1:70000", "`n1:70000` is no HOST"),
            ("zookeeper://[::1", "`[::1` is no HOST"),
            ("zookeeper://[::1]x", "`[::1]x` is no HOST"),
            ("zookeeper://n 1", "`n 1` is no HOST"),
            ("zookeeper://user@n1", "without a password"),
            ("zookeeper://:secret@n1", "a user's name is empty"),
            ("zookeeper://u%3Ax:secret@n1", "has a colon"),
            ("zookeeper://u:%ff@n1", "not UTF-8"),
            ("zookeeper://n1/a//b", "`/a//b` is no path"),
            ("zookeeper://n1/a/..", "`/a/..` is no path"),
            ("zookeeper://n1/%07", "is no path"),
            ("zookeeper://n1/%F0%9F%90%A2", "is no path"),
            ("zookeeper://n1?tls-ca=/ca.pem", "certificates are for zookeepers URLs"),
            ("zookeepers://n1?tls-ca=/no/such/file", "tls-ca: can't read /no/such/file"),
            ("zookeepers://n1?tls-ca=/dev/null", "tls-ca: /dev/null has no certificate"),
            ("zookeepers://n1?tls-key=/dev/null", "tls-cert and tls-key belong together"),
            (
                "zookeepers://n1/a?tls=x",
                "`tls` is no setting here; the settings are tls-ca, tls-cert and tls-key",
            ),
            ("zookeepers://n1?tls-ca=/a&tls-ca=/b", "`tls-ca` is given twice"),
            ("zookeeper://n1?sessionTimeout=9", "`sessionTimeout` is no setting here"),
            ("zookeepers://a..b", "no certificate can be for `a..b:2181`"),
            ("zookeeper://u:secret?x@n1", "write %3F for the ?"),
            ("zookeeper://u:secret/x@n1", "write %2F for a /"),
        ] {
            let error = Server::parse(url).err().expect(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
