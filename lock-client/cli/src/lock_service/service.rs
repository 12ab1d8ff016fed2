//! The kinds of lock services, and which of them the URLs name.

use std::mem::discriminant;

use crate::failure::Failure;

/// What the URLs name. A new kind is a variant here, and a line of `SCHEMES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service<'a> {
    /// One Redis, a primary that Sentinels name, or a Cluster.
    Redis(&'a str),
    /// The nodes of a Redlock cluster.
    Redlock(Vec<&'a str>),
    Etcd(&'a str),
    ZooKeeper(&'a str),
    Postgres(&'a str),
    MariaDb(&'a str),
    Sqlite(&'a str),
}

/// How similar the scheme that was meant is at least, from 0 to 1.
const SIMILAR: f64 = 0.9;

/// A scheme, with what follows it in a URL, and what such a URL names.
type Scheme<'a> = (&'static str, fn(&'a str) -> Service<'a>);

impl<'a> Service<'a> {
    const SCHEMES: [Scheme<'a>; 20] = [
        ("redis://", Self::Redis),
        ("rediss://", Self::Redis),
        ("redis+unix://", Self::Redis),
        ("redis+sentinel://", Self::Redis),
        ("rediss+sentinel://", Self::Redis),
        ("redis+cluster://", Self::Redis),
        ("rediss+cluster://", Self::Redis),
        ("unix://", Self::Redis),
        ("valkey://", Self::Redis),
        ("valkeys://", Self::Redis),
        ("valkey+unix://", Self::Redis),
        ("etcd://", Self::Etcd),
        ("etcds://", Self::Etcd),
        ("zookeeper://", Self::ZooKeeper),
        ("zookeepers://", Self::ZooKeeper),
        ("postgres://", Self::Postgres),
        ("postgresql://", Self::Postgres),
        ("mariadb://", Self::MariaDb),
        ("mysql://", Self::MariaDb),
        ("sqlite:", Self::Sqlite),
    ];

    /// Finds what the URLs name; `None` if there are none.
    ///
    /// # Errors
    /// If a scheme is unknown, or if several URLs don't name the nodes of Redlock.
    pub(super) fn parse(urls: &[&'a str]) -> Result<Option<Self>, Failure> {
        if urls.iter().any(|url| has_commas(url)) {
            return Err(Failure::Usage("separate the URLs of nodes by spaces".to_owned()));
        }
        let has_no_scheme = |url: &&str| !url.contains("://") && !url.starts_with("sqlite:");
        if let Some(place) = urls.iter().skip(1).position(has_no_scheme) {
            return Err(space_in_a_url(place + 2, urls.len()));
        }
        let services = urls.iter().map(|url| Self::named_by(url)).collect::<Result<Vec<_>, _>>()?;
        let [first, others @ ..] = &services[..] else { return Ok(None) };
        if let Some(other) = others.iter().find(|other| discriminant(*other) != discriminant(first))
        {
            return Err(Failure::Usage(format!(
                "the URLs name different lock services, {} and {}: name one of them",
                first.name(),
                other.name()
            )));
        }
        match first {
            _ if others.is_empty() => Ok(Some(first.clone())),
            Self::Redis(_) => Ok(Some(Self::Redlock(urls.to_vec()))),
            _ => Err(Failure::Usage(format!(
                "{} URLs name {}, which takes one; only the nodes of Redlock take several{}",
                urls.len(),
                first.name(),
                first.hint()
            ))),
        }
    }

    fn named_by(url: &'a str) -> Result<Self, Failure> {
        let is_scheme = |scheme: &str| {
            url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
        };
        let known = Self::SCHEMES.iter().find(|(scheme, _)| is_scheme(scheme));
        let (_, service) = known.ok_or_else(|| unknown_scheme(url))?;
        Ok(service(url))
    }

    /// The name of its kind.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Redis(_) => "Redis",
            Self::Redlock(_) => "Redlock",
            Self::Etcd(_) => "etcd",
            Self::ZooKeeper(_) => "ZooKeeper",
            Self::Postgres(_) => "PostgreSQL",
            Self::MariaDb(_) => "MariaDB",
            Self::Sqlite(_) => "SQLite",
        }
    }

    /// The name of its servers.
    pub(super) fn server_name(&self) -> &'static str {
        match self {
            Self::Redlock(_) => "Redis",
            other => other.name(),
        }
    }

    /// How several servers are named.
    fn hint(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "; separate the members of etcd by commas: etcd://HOST,HOST",
            Self::ZooKeeper(_) => {
                "; separate the members of ZooKeeper by commas: zookeeper://HOST,HOST"
            }
            _ => "",
        }
    }
}

/// Names the place only, because what follows a space may be a password.
fn space_in_a_url(place: usize, count: usize) -> Failure {
    let place = match place {
        2 => "2nd".to_owned(),
        3 => "3rd".to_owned(),
        place => format!("{place}th"),
    };
    Failure::Usage(format!(
        "the {place} of {count} URLs begins with no scheme, because a space separates URLs: write \
         %20 for a space within one"
    ))
}

/// Names the scheme only, because the rest may have a password.
fn unknown_scheme(url: &str) -> Failure {
    let scheme = match url.split_once("://") {
        Some((scheme, _)) => format!("`{scheme}://` is no scheme of a lock service"),
        None => "a URL of a lock service begins with its scheme".to_owned(),
    };
    if url.starts_with("http://") || url.starts_with("https://") {
        return Failure::Usage(format!(
            "{scheme}: for etcd, write etcd://HOST:2379, or etcds:// with TLS; see --help for others"
        ));
    }
    let given = url.find("://").map_or("", |end| &url[..end + 3]);
    let similar = Service::SCHEMES.map(|(scheme, _)| (strsim::jaro(given, scheme), scheme));
    let similar = similar.into_iter().max_by(|one, other| one.0.total_cmp(&other.0));
    if let Some((similarity, known)) = similar
        && similarity > SIMILAR
    {
        return Failure::Usage(format!("{scheme}: did you mean {known}?"));
    }
    let known = Service::SCHEMES.map(|(scheme, _)| scheme).join(", ");
    Failure::Usage(format!(
        "{scheme}: one of {known}; several URLs are separated by spaces (a space within a URL is \
         %20): see --help"
    ))
}

/// Whether a URL of one node is several URLs, or names several hosts. A password may have a comma.
fn has_commas(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    if !["redis", "rediss"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return false;
    }
    let hosts = rest.rsplit('@').next().unwrap_or_default();
    let hosts = hosts.split(['/', '?']).next().unwrap_or_default();
    hosts.contains(',') || rest.contains(",redis://") || rest.contains(",rediss://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(urls: &str) -> Result<&'static str, String> {
        let service = Service::parse(&urls.split_whitespace().collect::<Vec<_>>());
        let service = service.map_err(|failure| failure.message().unwrap())?;
        Ok(service.map_or("none", |service| service.name()))
    }

    #[test]
    fn scheme_names_the_lock_service() {
        for (urls, name) in [
            ("", "none"),
            ("redis+sentinel://s1,s2/locks", "Redis"),
            ("redis://a rediss://b redis+unix:///c", "Redlock"),
            ("etcds://a,b", "etcd"),
            ("zookeeper://a,b/apps", "ZooKeeper"),
            ("zookeepers://a", "ZooKeeper"),
            ("postgresql://a/b", "PostgreSQL"),
            ("mysql://a/b", "MariaDB"),
            ("sqlite:locks.db", "SQLite"),
        ] {
            assert_eq!(parsed(urls), Ok(name), "{urls}");
        }
    }

    #[test]
    fn readme_has_all_schemes() {
        let readme = include_str!("../../README.md");
        for (scheme, _) in Service::SCHEMES {
            // It says that each of Redis has one for TLS.
            let plain = scheme.replace("rediss", "redis");
            assert!(readme.contains(&format!("`{plain}")), "{scheme}");
        }
    }

    #[test]
    fn urls_that_name_no_single_lock_service_are_rejected_without_their_passwords() {
        for (urls, reason) in [
            ("http://u:secret@a:2379", "`http://` is no scheme of a lock service: for etcd, write"),
            ("https://u:secret@a", "`https://` is no scheme of a lock service: for etcd, write"),
            ("ftp://u:secret@a", "`ftp://` is no scheme of a lock service: one of redis://"),
            ("u:secret@a", "a URL of a lock service begins with its scheme: one of redis://"),
            ("etcd:a", "begins with its scheme"),
            ("etcd://u:secret@a etcd://b", "2 URLs name etcd, which takes one"),
            ("etcd://a etcd://b", "separate the members of etcd by commas: etcd://HOST,HOST"),
            (
                "zookeeper://a zookeeper://u:secret@b",
                "members of ZooKeeper by commas: zookeeper://H",
            ),
            ("sqlite:a sqlite:b sqlite:c", "3 URLs name SQLite, which takes one"),
            ("redis://:secret@a etcd://b", "different lock services, Redis and etcd"),
            ("postgres://a/b redis://c redis://d", "different lock services, PostgreSQL and Redis"),
        ] {
            let message = parsed(urls).unwrap_err();
            assert!(message.contains(reason), "{urls}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }

    #[test]
    fn urls_with_commas_between_them_are_found() {
        for url in [
            "redis://a,redis://b,redis://c",
            "redis://a:6379,b:6379,c:6379/1",
            "rediss://:x@a/0,rediss://:y@b/0",
        ] {
            assert!(has_commas(url), "{url}");
        }
        for url in [
            "redis://a:6379/0",
            "redis://:a,b@host",
            "redis+unix:///tmp/a,b",
            "redis+sentinel://a,b/locks",
            "redis+cluster://a,b",
        ] {
            assert!(!has_commas(url), "{url}");
        }
    }
}
