//! The hosts in a URL. A URL with several of them is none for the crate `url`.

/// A URL, divided around its hosts.
#[derive(Debug)]
pub struct DividedUrl<'a> {
    /// Up to the user and the password, such as `postgres://user:password@`.
    before: &'a str,
    hosts: &'a str,
    /// From the path on.
    after: &'a str,
}

impl<'a> DividedUrl<'a> {
    /// Divides a URL; `None` if it has no authority.
    pub fn divide(url: &'a str) -> Option<Self> {
        let begin = url.find("://")? + "://".len();
        let length = url[begin..].find(['/', '?', '#']).unwrap_or(url.len() - begin);
        let (authority, after) = url[begin..].split_at(length);
        let begin = begin + authority.rfind('@').map_or(0, |at| at + 1);
        let (before, rest) = url.split_at(begin);
        Some(Self { before, hosts: &rest[..rest.len() - after.len()], after })
    }

    /// The hosts, each with its port.
    pub fn hosts(&self) -> impl Iterator<Item = &'a str> {
        self.hosts.split(',')
    }

    /// Whether the hosts may be a part of a password, which is not encoded.
    pub fn is_ambiguous(&self) -> bool {
        self.after.contains('@')
    }

    /// All hosts as they are written.
    pub fn written_hosts(&self) -> &'a str {
        self.hosts
    }

    /// The URL with other hosts.
    pub fn with_hosts(&self, hosts: &str) -> String {
        let Self { before, after, .. } = self;
        format!("{before}{hosts}{after}")
    }
}
