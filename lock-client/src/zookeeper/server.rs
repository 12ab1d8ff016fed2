//! The ZooKeeper that a URL names: its members, the user, and the node that is the root.

use std::fmt;

use rustls::pki_types::ServerName;

use crate::{
    service_url::{InvalidUrl, Member, ServiceUrl, User, addresses, decoded},
    tls::Certificates,
};

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

impl Server {
    /// Parses a URL. Its form is that of [`ZooKeeper::open`](super::ZooKeeper::open).
    pub(super) fn open(url: &str) -> Result<Self, InvalidUrl> {
        let (subject, example) =
            ("not a usable ZooKeeper URL", "zookeeper://HOST[:PORT],HOST[:PORT]");
        Self::parse(url).map_err(|invalid| invalid.within(subject, example))
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let (parts, tls) = Certificates::parse_url(url, "zookeeper", DEFAULT_PORT)?;
        let ServiceUrl { user, members, path, .. } = parts;
        if user.as_ref().is_some_and(|user| user.name.is_empty() || user.name.contains(':')) {
            return Err(InvalidUrl::new("a user's name is empty or has a colon"));
        }
        let can_be_certified = |member: &&Member| ServerName::try_from(&*member.host).is_ok();
        if let Some(member) = members.iter().find(|member| !can_be_certified(member))
            && tls.is_some()
        {
            return Err(InvalidUrl::new(format!("no certificate can be for `{member}`")));
        }
        Ok(Self { members, user, root: root(&path)?, tls })
    }

    /// The user and the password, as a login sends them.
    pub(super) fn credentials(&self) -> Option<String> {
        self.user.as_ref().map(|user| format!("{}:{}", user.name, user.password))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper {}{}", addresses(&self.members), self.root)
    }
}

/// Parses the path of a URL, without its first slash.
fn root(path: &str) -> Result<String, InvalidUrl> {
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
        false => Err(InvalidUrl::new(format!("`/{path}` is no path of a node"))),
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
        assert_eq!(server.credentials().as_deref(), Some("u@x:p:/"));
    }

    #[test]
    fn wrong_urls_are_rejected_with_the_reason() {
        for (url, reason) in [
            ("http://n1", "it does not begin with zookeeper:// or zookeepers://"),
            ("zookeeper://:secret@n1", "a user's name is empty"),
            ("zookeeper://u%3Ax:secret@n1", "has a colon"),
            ("zookeeper://n1/a//b", "`/a//b` is no path"),
            ("zookeeper://n1/a/..", "`/a/..` is no path"),
            ("zookeeper://n1/%07", "is no path"),
            ("zookeeper://n1/%F0%9F%90%A2", "is no path"),
            ("zookeeper://n1?tls-ca=/ca.pem", "certificates are for zookeepers URLs"),
            ("zookeeper://n1?sessionTimeout=9", "`sessionTimeout` is no setting here"),
            ("zookeepers://a..b", "no certificate can be for `a..b:2181`"),
        ] {
            let error = Server::parse(url).err().expect(url).to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
