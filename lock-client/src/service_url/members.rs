//! The user, the members and the path of a URL that names several servers.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::{InvalidUrl, UrlSettings};

/// The parts of a URL that names several servers:
/// `SCHEME://[[USER]:PASSWORD@]HOST[:PORT],…[/PATH][?SETTINGS]`.
pub(crate) struct ServiceUrl {
    pub(crate) user: Option<User>,
    /// One or more.
    pub(crate) members: Vec<Member>,
    /// The text after the first slash, still encoded.
    pub(crate) path: String,
    pub(crate) settings: UrlSettings,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// Empty if there is only a password.
    pub(crate) name: String,
    pub(crate) password: String,
}

/// One of the servers. It displays as `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// The host. An IPv6 address is without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl ServiceUrl {
    /// Parses a URL. A member without a port has the default port.
    pub(crate) fn parse(url: &str, default_port: u16) -> Result<Self, InvalidUrl> {
        let (rest, settings) = split_settings(url)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The password has a slash, and what looks like a host is its beginning.
        if path.contains('@') {
            return Err(InvalidUrl::new("write %2F for the / in the user or the password"));
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(User::parse(user)?), hosts),
            None => (None, authority),
        };
        let members = hosts.split(',').map(|host| Member::parse(host, default_port));
        Ok(Self {
            user,
            members: members.collect::<Result<_, _>>()?,
            path: path.to_owned(),
            settings,
        })
    }

    pub(crate) fn parse_socket(url: &str) -> Result<Self, InvalidUrl> {
        let (path, settings) = split_settings(url)?;
        Ok(Self { user: None, members: vec![], path: path.to_owned(), settings })
    }
}

/// Splits a URL into the text between its scheme and its settings, and the settings.
fn split_settings(url: &str) -> Result<(&str, UrlSettings), InvalidUrl> {
    let (_, rest) = url.split_once("://").ok_or_else(|| InvalidUrl::new("it has no scheme"))?;
    // A URL ends before its fragment, so the rest of a password or a file would be lost. And the
    // `redis` crate reads `#insecure` as a wish for no verification.
    if rest.contains('#') {
        return Err(InvalidUrl::new("write %23 for a #"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A file may have an @ in its name. Before the first setting, it is the end of a password, which
    // no error may show.
    if query.split('=').next().is_some_and(|name| name.contains('@')) {
        return Err(InvalidUrl::new("write %3F for the ? in the user or the password"));
    }
    Ok((rest, UrlSettings::parse(query)))
}

pub(crate) fn addresses(members: &[impl ToString]) -> String {
    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl User {
    fn parse(user: &str) -> Result<Self, InvalidUrl> {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let user = Self { name: decoded(name)?, password: decoded(password)? };
        match user.password.is_empty() {
            true => Err(InvalidUrl::new("a user is given without a password")),
            false => Ok(user),
        }
    }
}

impl Member {
    fn parse(address: &str, default_port: u16) -> Result<Self, InvalidUrl> {
        // The colons of an IPv6 address are inside brackets.
        let split = match address.strip_prefix('[') {
            Some(rest) => rest.split_once(']').filter(|(host, _)| host.contains(':')),
            None => Some(address.split_at(address.find(':').unwrap_or(address.len()))),
        };
        let parsed = split.and_then(|(host, port)| {
            let port = match port.strip_prefix(':') {
                Some(port) => port.parse().ok().filter(|&port| port > 0)?,
                None if port.is_empty() => default_port,
                None => return None,
            };
            Some((host, port))
        });
        let is_name =
            |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
        match parsed {
            Some(("", _)) => Err(InvalidUrl::new("a host is missing")),
            Some((host, port)) if is_name(host) => Ok(Self { host: host.to_owned(), port }),
            _ => Err(InvalidUrl::new(format!("`{}` is no HOST or HOST:PORT", shown(address)))),
        }
    }
}

/// Returns what an error shows of a member. In a URL without an `@`, the password of a user looks like
/// a port.
fn shown(address: &str) -> String {
    match address.split_once(':') {
        Some((host, port))
            if !host.starts_with('[') && !port.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            format!("{host}:…")
        }
        _ => address.to_owned(),
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
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
        let user = url.user.unwrap();
        assert_eq!((user.name.as_str(), user.password.as_str()), ("u@x", "p::"));
        assert_eq!(addresses(&url.members), "n1:1,n2:7,[::1]:7,[::1]:5");
        assert_eq!(url.members[2].host, "::1");
        assert_eq!((url.path.as_str(), url.settings.get("x")), ("a%20b/3", Some("1")));
        assert_eq!(decoded(&url.path).unwrap(), "a b/3");
        let user = parsed("x://:secret@n").unwrap().user.unwrap();
        assert_eq!((user.name.as_str(), user.password.as_str()), ("", "secret"));
        assert!(parsed("x://n").unwrap().user.is_none());
    }

    #[test]
    fn wrong_urls_are_rejected_without_their_passwords() {
        for (url, reason) in [
            ("secret", "it has no scheme"),
            ("x://", "a host is missing"),
            ("x://n1,,n2", "a host is missing"),
            ("x://:1", "a host is missing"),
            ("x://n1:port", "`n1:…` is no HOST"),
            ("x://user:secret", "`user:…` is no HOST"),
            ("x://n1,user:1:secret/a", "`user:…` is no HOST"),
            ("x://n1:0", "`n1:0` is no HOST"),
            ("x://n1:70000", "`n1:70000` is no HOST"),
            ("x://n1:", "`n1:` is no HOST"),
            ("x://n 1", "`n 1` is no HOST"),
            ("x://n::1", "`n:…` is no HOST"),
            ("x://[::1", "`[::1` is no HOST"),
            ("x://[::1]x", "`[::1]x` is no HOST"),
            ("x://a[::1]", "`a[:…` is no HOST"),
            ("x://user@n1", "without a password"),
            ("x://user:@n1", "without a password"),
            ("x://u:%ff@n1", "not UTF-8"),
            ("x://u:se#cret@n1", "write %23 for a #"),
            ("x://u:secret?x@n1", "write %3F for the ?"),
            ("x://u:secret?@n1", "write %3F for the ?"),
            ("x://u:secret/x@n1", "write %2F for the /"),
            ("x://u:1/secret@n1", "write %2F for the /"),
        ] {
            let error = parsed(url).err().expect(url);
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
