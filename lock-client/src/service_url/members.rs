//! The user, the members and the path of a URL that names several servers.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::{InvalidUrl, UrlSettings};

/// `SCHEME://[USER[:PASSWORD]@]HOST[:PORT],…[/PATH][?SETTINGS]`
pub(crate) struct ServiceUrl {
    pub(crate) user: User,
    /// One or more.
    pub(crate) members: Vec<Member>,
    /// What follows the first slash, still encoded.
    pub(crate) path: String,
    pub(crate) settings: UrlSettings,
}

/// The user that a URL names; empty without one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: Option<String>,
    pub(crate) password: Option<String>,
}

/// One of the servers. It displays as `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// The host. An IPv6 address is in brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl ServiceUrl {
    /// Parses a URL. A member without a port has the default port.
    pub(crate) fn parse(url: &str, default_port: u16) -> Result<Self, InvalidUrl> {
        let (_, rest) = url.split_once("://").ok_or_else(|| InvalidUrl::new("it has no scheme"))?;
        // A URL ends before its fragment, so the rest of a password or a file would be lost.
        if rest.contains('#') {
            return Err(InvalidUrl::new("write %23 for a #"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A file may have an @ in its name. Before the first setting, it is the end of a password,
        // which no error may show.
        if query.split('=').next().is_some_and(|name| name.contains('@')) {
            return Err(InvalidUrl::new("write %3F for the ? in the user or the password"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (User::parse(user)?, hosts),
            None => (User::default(), authority),
        };
        let members = hosts.split(',').map(|host| Member::parse(host, default_port));
        let members =
            members.collect::<Result<_, _>>().map_err(|invalid| match path.rfind('@') {
                // The password has a slash, and what looks like a host is its begin.
                Some(_) => InvalidUrl::new("write %2F for the / in the user or the password"),
                None => invalid,
            })?;
        Ok(Self { user, members, path: path.to_owned(), settings: UrlSettings::parse(query) })
    }

    /// The members, with commas between them.
    pub(crate) fn addresses(&self) -> String {
        let addresses: Vec<_> = self.members.iter().map(Member::to_string).collect();
        addresses.join(",")
    }
}

impl User {
    fn parse(user: &str) -> Result<Self, InvalidUrl> {
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(decoded(password)?)),
            None => (user, None),
        };
        let name = if name.is_empty() { None } else { Some(decoded(name)?) };
        if name.is_some() && password.is_none() {
            return Err(InvalidUrl::new("a user is given without a password"));
        }
        Ok(Self { name, password })
    }
}

impl Member {
    fn parse(address: &str, default_port: u16) -> Result<Self, InvalidUrl> {
        // The colons of an IPv6 address are inside brackets.
        let end_of_host = address.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match address[end_of_host..].find(':') {
            Some(colon) => address.split_at(end_of_host + colon),
            None => (address, ""),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok(),
            None => Some(default_port),
        };
        let is_bracketed = end_of_host == 0 || (host.starts_with('[') && end_of_host == host.len());
        match port {
            _ if host.is_empty() => Err(InvalidUrl::new("a host is missing")),
            Some(port) if is_bracketed => Ok(Self { host: host.to_owned(), port }),
            _ => Err(InvalidUrl::new(format!("`{address}` is no HOST or HOST:PORT"))),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Replaces what is percent-encoded in a part of a URL before its settings.
pub(crate) fn decoded(text: &str) -> Result<String, InvalidUrl> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| InvalidUrl::new("a part of it is not UTF-8"))?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<ServiceUrl, String> {
        ServiceUrl::parse(url, 7).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_of_a_url_are_split_and_decoded() {
        let url = parsed("X+Y://u%40x:p%3A:@n1:1,n2,[::1],[::1]:5/a%20b/3?x=1").unwrap();
        assert_eq!(url.user.name.as_deref(), Some("u@x"));
        assert_eq!(url.user.password.as_deref(), Some("p::"));
        let members: Vec<_> = url.members.iter().map(Member::to_string).collect();
        assert_eq!(members, ["n1:1", "n2:7", "[::1]:7", "[::1]:5"]);
        assert_eq!((url.path.as_str(), url.settings.get("x")), ("a%20b/3", Some("1")));
        assert_eq!(decoded(&url.path).unwrap(), "a b/3");
        let url = parsed("x://:secret@n").unwrap();
        assert_eq!(url.user, User { name: None, password: Some("secret".to_owned()) });
    }

    #[test]
    fn wrong_urls_are_rejected_without_their_passwords() {
        for (url, reason) in [
            ("secret", "it has no scheme"),
            ("x://", "a host is missing"),
            ("x://n1,,n2", "a host is missing"),
            ("x://:1", "a host is missing"),
            ("x://n1:port", "`n1:port` is no HOST"),
            ("x://n1:", "`n1:` is no HOST"),
            ("x://n::1", "`n::1` is no HOST"),
            ("x://a[::1]", "`a[::1]` is no HOST"),
            ("x://user@n1", "without a password"),
            ("x://u:%ff@n1", "not UTF-8"),
            ("x://u:se#cret@n1", "write %23 for a #"),
            ("x://u:secret?x@n1", "write %3F for the ?"),
            ("x://u:secret/x@n1", "write %2F for the /"),
        ] {
            let error = parsed(url).err().expect(url);
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
