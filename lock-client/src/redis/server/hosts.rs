//! The hosts that the URL of Sentinels or of a Cluster names.

use redis::{Client, IntoConnectionInfo, RedisResult};

use super::{super::settings::tcp_settings, certificates::Certificates, url::InvalidRedisUrl};

/// `[USER:PASSWORD@]HOST[:PORT],…[/PATH]`
pub(super) struct Hosts<'a> {
    /// The user and the password, with the `@`; empty without them.
    pub(super) user: &'a str,
    pub(super) hosts: Vec<&'a str>,
    pub(super) path: &'a str,
}

impl<'a> Hosts<'a> {
    pub(super) fn parse(rest: &'a str) -> Result<Self, InvalidRedisUrl> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.contains(&"") {
            return Err(InvalidRedisUrl::new("a host is missing"));
        }
        Ok(Self { user, hosts, path })
    }

    /// The hosts as they were named, without the password.
    pub(super) fn names(&self) -> String {
        self.hosts.join(",")
    }

    /// Returns a client of each host.
    pub(super) fn clients(
        &self,
        scheme: &str,
        user: &str,
        default_port: u16,
        certificates: &Certificates,
    ) -> RedisResult<Vec<Client>> {
        let client = |host: &&str| {
            // The colons of an IPv6 address are inside brackets.
            let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
            let port = if has_port { String::new() } else { format!(":{default_port}") };
            let info = format!("{scheme}://{user}{host}{port}").into_connection_info()?;
            certificates.client(info.set_tcp_settings(tcp_settings()))
        };
        self.hosts.iter().map(client).collect()
    }
}
