//! The kinds of lock services, and which of them the URLs name.

use std::mem::discriminant;

use lock_client::redis;

use crate::failure::Failure;

/// The scheme of a file, which no slashes need to follow.
const FILE: &str = "sqlite";

/// What the URLs name. A new kind is a variant here, and a line of `SCHEMES` below.
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

/// A scheme, and what its URLs name.
type Scheme<'a> = (&'static str, fn(&'a str) -> Service<'a>);

impl<'a> Service<'a> {
    /// The schemes of others than Redis.
    const SCHEMES: [Scheme<'a>; 9] = [
        ("etcd", Self::Etcd),
        ("etcds", Self::Etcd),
        ("zookeeper", Self::ZooKeeper),
        ("zookeepers", Self::ZooKeeper),
        ("postgres", Self::Postgres),
        ("postgresql", Self::Postgres),
        ("mariadb", Self::MariaDb),
        ("mysql", Self::MariaDb),
        (FILE, Self::Sqlite),
    ];

    fn schemes() -> impl Iterator<Item = Scheme<'a>> {
        let redis: fn(&'a str) -> Self = Self::Redis;
        redis::schemes().map(move |scheme| (scheme, redis)).chain(Self::SCHEMES)
    }

    /// Finds what the URLs name; `None` if there are none.
    ///
    /// # Errors
    /// If a scheme is unknown, or if several URLs don't name the nodes of Redlock.
    pub(super) fn parse(urls: &[&'a str]) -> Result<Option<Self>, Failure> {
        if urls.iter().any(|url| has_commas(url)) {
            return Err(Failure::usage("separate the URLs of nodes by spaces"));
        }
        let services = urls.iter().enumerate().map(|(place, url)| Self::named_by(place, url));
        let services = services.collect::<Result<Vec<_>, _>>()?;
        let [first, others @ ..] = &services[..] else { return Ok(None) };
        if let Some(other) = others.iter().find(|other| discriminant(*other) != discriminant(first))
        {
            return Err(Failure::usage(format!(
                "the URLs name different lock services, {} and {}: name one of them",
                first.name(),
                other.name()
            )));
        }
        match first {
            _ if others.is_empty() => Ok(Some(first.clone())),
            Self::Redis(_) => Ok(Some(Self::Redlock(urls.to_vec()))),
            _ => Err(Failure::usage(format!(
                "{} URLs name {}, which takes one; only the nodes of Redlock take several{}",
                urls.len(),
                first.name(),
                first.hint()
            ))),
        }
    }

    fn named_by(place: usize, url: &'a str) -> Result<Self, Failure> {
        let begins = |scheme: &str| {
            let scheme = with_separator(scheme);
            url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(&scheme))
        };
        let known = Self::schemes().find(|(scheme, _)| begins(scheme));
        let (_, service) = known.ok_or_else(|| unknown_scheme(place, url))?;
        Ok(service(url))
    }

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

/// A scheme, with what follows it in a URL.
fn with_separator(scheme: &str) -> String {
    if scheme == FILE { format!("{scheme}:") } else { format!("{scheme}://") }
}

/// Names the scheme only, because the rest may have a password. Of a URL that follows a space, all may be
/// a password.
fn unknown_scheme(place: usize, url: &str) -> Failure {
    let known: Vec<_> = Service::schemes().map(|(scheme, _)| with_separator(scheme)).collect();
    let known = known.join(", ");
    let http = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    Failure::usage(match url.split_once("://") {
        Some((scheme, _)) if http => format!(
            "`{scheme}://` is no scheme of a lock service: for etcd, write etcd://HOST:2379, or \
             etcds:// with TLS; see --help for others"
        ),
        Some((scheme, _)) => {
            format!("`{scheme}://` is no scheme of a lock service: one of {known}; see --help")
        }
        None => format!(
            "a URL of a lock service begins with its scheme, and URL {} does not: one of {known}; \
             several URLs are separated by spaces (a space within a URL is %20): see --help",
            place + 1
        ),
    })
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
        let service = service.map_err(|failure| failure.message().unwrap().to_owned())?;
        Ok(service.map_or("none", |service| service.name()))
    }

    #[test]
    fn scheme_names_the_lock_service() {
        for (urls, name) in [
            ("", "none"),
            ("redis+sentinel://s1,s2/locks", "Redis"),
            ("redis://a rediss://b redis+unix:///c", "Redlock"),
            ("redis://:a,b@host", "Redis"),
            ("redis+unix:///tmp/a,b", "Redis"),
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
        for (scheme, _) in Service::schemes() {
            // It says that each of Redis has one for TLS.
            let plain = with_separator(scheme).replace("rediss", "redis");
            assert!(readme.contains(&format!("`{plain}")), "{scheme}");
        }
    }
}
