//! The etcd that a URL names: its members, the user, and the certificates.

use std::fmt;

use hyper::{Uri, http::uri::Scheme};

use crate::{
    service_url::{self, InvalidUrl, ServiceUrl, User, addresses},
    tls::Certificates,
};

/// The port of a member that a URL names without one.
const DEFAULT_PORT: u16 = 2379;

/// An etcd. It displays as its members, without a password.
pub(super) struct Server {
    pub(super) members: Vec<Member>,
    pub(super) user: Option<User>,
    /// The certificates of encrypted connections; `None` if they are not encrypted.
    pub(super) certificates: Option<Certificates>,
}

/// One member. It displays as host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member(Uri);

impl Server {
    /// Parses a URL. Its form is that of [`Etcd::open`](super::Etcd::open).
    pub(super) fn open(url: &str) -> Result<Self, InvalidUrl> {
        let (subject, example) = ("not a usable etcd URL", "etcd://HOST[:PORT],HOST[:PORT]");
        Self::parse(url).map_err(|invalid| invalid.within(subject, example))
    }

    fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let (parts, certificates) = Certificates::parse_url(url, "etcd", DEFAULT_PORT)?;
        let ServiceUrl { user, members, path, .. } = parts;
        if !path.is_empty() {
            return Err(InvalidUrl::new("etcd has no path"));
        }
        if user.as_ref().is_some_and(|user| user.name.is_empty()) {
            return Err(InvalidUrl::new("a password is given without a user"));
        }
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let member = |member: &service_url::Member| match format!("{scheme}://{member}").parse() {
            Ok(uri) => Ok(Member(uri)),
            Err(_) => Err(InvalidUrl::new(format!("`{member}` is no HOST or HOST:PORT"))),
        };
        Ok(Self {
            members: members.iter().map(member).collect::<Result<_, _>>()?,
            user,
            certificates,
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd {}", addresses(&self.members))
    }
}

impl Member {
    pub(super) fn uri(&self) -> Uri {
        self.0.clone()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.authority().expect("it was parsed with one").fmt(f)
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
        assert_eq!(member.uri().to_string(), "http://n1:2379/");
    }

    #[test]
    fn wrong_urls_are_rejected_with_the_reason() {
        for (url, reason) in [
            ("http://n1", "it does not begin with etcd:// or etcds://"),
            ("etcd://n1/path", "etcd has no path"),
            ("etcd://user:secret", "`user:…` is no HOST"),
            ("etcd://:secret@n1", "without a user"),
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
