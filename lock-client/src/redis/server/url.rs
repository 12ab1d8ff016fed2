//! The URLs of Redis, as far as they name several servers or need a feature of this crate.

use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    RedisResult,
};

use super::{
    super::{failure::reason, settings::tcp_settings},
    certificates,
};
use crate::service_url::{InvalidUrl, Member, ServiceUrl, User, addresses};

/// The ports of a node and of a Sentinel that a URL names without one.
const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const DATABASE: &str = "db";
const PROTOCOL: &str = "protocol";
pub(super) const SENTINEL_USER: &str = "sentinel-user";
pub(super) const SENTINEL_PASSWORD: &str = "sentinel-password";

pub(super) const USER_WITHOUT_PASSWORD: &str = "a user is given without a password";

/// The reason why the `redis` crate rejects a URL.
pub(super) fn rejected(error: RedisError) -> InvalidUrl {
    InvalidUrl::new(reason(&error))
}

pub(super) struct RedisUrl<'a> {
    whole: &'a str,
    pub(super) kind: UrlKind,
    pub(super) is_encrypted: bool,
    pub(super) parts: ServiceUrl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UrlKind {
    Node,
    Socket,
    Sentinel,
    Cluster,
}

impl UrlKind {
    fn settings(self) -> Vec<&'static str> {
        let own: &[_] = match self {
            Self::Node => &[DATABASE],
            Self::Socket => &[DATABASE, "user", "pass"],
            Self::Sentinel => &[DATABASE, SENTINEL_USER, SENTINEL_PASSWORD],
            Self::Cluster => &[],
        };
        [own, &[PROTOCOL], &certificates::SETTINGS].concat()
    }
}

/// The schemes, and whether connections are encrypted.
const SCHEMES: [(&str, UrlKind, bool); 11] = [
    ("redis", UrlKind::Node, false),
    ("rediss", UrlKind::Node, true),
    ("valkey", UrlKind::Node, false),
    ("valkeys", UrlKind::Node, true),
    ("unix", UrlKind::Socket, false),
    ("redis+unix", UrlKind::Socket, false),
    ("valkey+unix", UrlKind::Socket, false),
    ("redis+sentinel", UrlKind::Sentinel, false),
    ("rediss+sentinel", UrlKind::Sentinel, true),
    ("redis+cluster", UrlKind::Cluster, false),
    ("rediss+cluster", UrlKind::Cluster, true),
];

/// Returns the schemes of the URLs of Redis, without `://`.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().map(|(scheme, ..)| *scheme)
}

impl<'a> RedisUrl<'a> {
    /// Splits a URL.
    ///
    /// # Errors
    /// [`InvalidUrl`] if its scheme is unknown or needs a feature that was not compiled, or it
    /// has an unknown setting.
    pub(super) fn parse(whole: &'a str) -> Result<Self, InvalidUrl> {
        let (scheme, _) = whole
            .split_once("://")
            .ok_or_else(|| InvalidUrl::new("it begins with no scheme of Redis"))?;
        let scheme = scheme.to_lowercase();
        let (_, kind, is_encrypted) = SCHEMES
            .into_iter()
            .find(|(known, ..)| *known == scheme)
            .ok_or_else(|| InvalidUrl::new("its scheme is none of Redis"))?;
        if is_encrypted && !cfg!(feature = "tls") {
            return Err(InvalidUrl::new(
                "encrypted connections need the feature `tls` of the crate lock-client",
            ));
        }
        let parts = match kind {
            UrlKind::Node | UrlKind::Cluster => ServiceUrl::parse(whole, REDIS_PORT)?,
            UrlKind::Sentinel => ServiceUrl::parse(whole, SENTINEL_PORT)?,
            UrlKind::Socket => ServiceUrl::parse_socket(whole)?,
        };
        parts.settings.check_known(&kind.settings())?;
        Ok(Self { whole, kind, is_encrypted, parts })
    }

    pub(super) fn node(&self) -> Result<ConnectionInfo, InvalidUrl> {
        let info = self.whole.into_connection_info().map_err(rejected)?;
        let redis = info.redis_settings();
        if redis.username().is_some() && redis.password().is_none() {
            // The `redis` crate would connect as the default user.
            return Err(InvalidUrl::new(USER_WITHOUT_PASSWORD));
        }
        let redis = match self.kind {
            UrlKind::Node if self.parts.members.len() > 1 => {
                return Err(InvalidUrl::new("it names several servers"));
            }
            UrlKind::Node => redis.clone().set_db(self.database(&self.parts.path)?),
            _ => redis.clone(),
        };
        Ok(info.set_redis_settings(redis))
    }

    /// Returns the database that a path or a setting names. It is 0 by default.
    ///
    /// # Errors
    /// [`InvalidUrl`] if they name two, because other clients take the one or the other.
    pub(super) fn database(&self, path: &str) -> Result<i64, InvalidUrl> {
        let parsed = |text: &str| {
            let number = text.parse::<u32>().map(i64::from);
            number.map_err(|_| InvalidUrl::new("its database is no number"))
        };
        let of_path = match path.trim_matches('/') {
            "" => None,
            number => Some(parsed(number)?),
        };
        let of_setting = self.parts.settings.get(DATABASE).map(parsed).transpose()?;
        match (of_path, of_setting) {
            (Some(one), Some(other)) if one != other => {
                Err(InvalidUrl::new(format!("it names the databases {one} and {other}")))
            }
            _ => Ok(of_path.or(of_setting).unwrap_or(0)),
        }
    }

    pub(super) fn addresses(&self) -> Vec<ConnectionAddr> {
        let addresses =
            self.parts.members.iter().map(|Member { host, port }| match self.is_encrypted {
                true => encrypted(host.clone(), *port),
                false => ConnectionAddr::Tcp(host.clone(), *port),
            });
        addresses.collect()
    }
}

/// The address of a port that takes encrypted connections. Certificates are set for each connection.
fn encrypted(host: String, port: u16) -> ConnectionAddr {
    ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
}

/// The address of a server whose connections are encrypted if those to another one are.
pub(super) fn address_beside(other: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match other {
        ConnectionAddr::TcpTls { .. } => encrypted(host, port),
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// The settings of a connection to one of several servers.
pub(super) fn connection_info(
    address: ConnectionAddr,
    settings: &RedisConnectionInfo,
) -> RedisResult<ConnectionInfo> {
    let info = address.into_connection_info()?.set_redis_settings(settings.clone());
    Ok(info.set_tcp_settings(tcp_settings()))
}

/// The user, the password and the protocol at several servers.
pub(super) fn connection_settings(parts: &ServiceUrl) -> Result<RedisConnectionInfo, InvalidUrl> {
    // The `redis` crate reads the protocol.
    let protocol = parts.settings.get(PROTOCOL).unwrap_or("2");
    let info = format!("redis://host/?{PROTOCOL}={protocol}").into_connection_info();
    let info = info.map_err(rejected)?;
    let settings = info.redis_settings().clone();
    Ok(match &parts.user {
        Some(User { name, password }) if name.is_empty() => settings.set_password(password),
        Some(User { name, password }) => settings.set_username(name).set_password(password),
        None => settings,
    })
}

/// Says that a URL can't be used, and names it without its password.
pub(super) fn unusable(url: &str, invalid: InvalidUrl) -> InvalidUrl {
    let subject = format!("`{}` is not a usable Redis URL", without_password(url));
    invalid.within(&subject, "redis://HOST[:PORT]")
}

/// Returns a URL without its user and its settings. A URL that can't be parsed may have a password anywhere.
fn without_password(url: &str) -> String {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match ServiceUrl::parse(url, REDIS_PORT) {
        Ok(ServiceUrl { members, path, .. }) => {
            format!("{scheme}://{}/{path}", addresses(&members))
        }
        Err(_) => format!("{scheme}://…"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Server;

    #[test]
    fn wrong_urls_are_rejected_with_the_reason() {
        for (url, reason) in [
            ("nonsense", "not a usable Redis URL"),
            ("http://localhost", "not a usable Redis URL"),
            ("redis://localhost?tls-ca=/ca.pem", "certificates are for rediss URLs"),
            ("redis://user@localhost", "a user is given without a password"),
            ("redis+unix:///redis.sock?user=u", "a user is given without a password"),
            ("redis+sentinel://user@s1/locks", "a user is given without a password"),
            ("redis+sentinel://s1/locks?sentinel-user=u", "a user is given without a password"),
            ("redis+cluster://user@n1", "a user is given without a password"),
            ("rediss://localhost?tls-ca=/no/such/file", "tls-ca: can't read /no/such/file"),
            ("rediss://localhost?tls-key=/dev/null", "tls-cert and tls-key belong together"),
            ("redis+sentinel://s1/locks?sentinel-pass=x", "the settings are db, sentinel-user, "),
            ("redis+cluster://n1?sentinel-password=x", "`sentinel-password` is no setting here"),
            (
                "redis://localhost?sslmod=x",
                "the settings are db, protocol, tls-ca, tls-cert and tls-key",
            ),
            ("redis://localhost?DB=3", "`DB` is no setting here"),
            ("redis://localhost?user=u", "`user` is no setting here"),
            ("redis+unix:///redis.sock?database=3", "the settings are db, user, pass, protocol, "),
            ("redis://localhost/2?db=3", "it names the databases 2 and 3"),
            ("redis://localhost?db=x", "its database is no number"),
            ("redis://localhost?protocol=4", "Invalid protocol version"),
            ("redis://localhost/#insecure", "write %23 for a #"),
            ("redis+sentinel://s1,s2", "the primary's name"),
            ("redis+cluster://", "a host is missing"),
            ("redis+cluster://n1,,n2", "a host is missing"),
            ("redis+cluster://n1/3", "no databases"),
        ] {
            let error = Server::open(url).expect_err("the URL is rejected").to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn wrong_url_is_named_without_its_password() {
        for (url, named) in [
            ("localhost:6379", "://…"),
            ("redis://", "redis://…"),
            ("redis://user:secret@[::1]/3#x", "redis://…"),
            ("redis://user:secret@[::1]/x", "redis://[::1]:6379/x"),
            ("redis://:se/cr?e@t@localhost/x", "redis://…"),
            ("redis://:secret", "redis://…"),
            ("redis://host:secret/secret", "redis://…"),
            ("redis://host/x?pass=secret", "redis://host:6379/x"),
        ] {
            let error = Server::open(url).expect_err("the URL is rejected").to_string();
            assert!(
                error.starts_with(&format!("`{named}` is not a usable Redis URL: ")),
                "{error}"
            );
            assert!(!error.contains("InvalidClientConfig"), "{error}");
        }
    }
}
