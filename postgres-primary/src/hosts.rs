//! A URL with one or several hosts. sqlx takes one.

use sqlx::postgres::PgConnectOptions;
use url::Url;

use crate::divided_url::DividedUrl;

/// Which of several hosts a session needs, as in libpq. All values that are taken mean the primary,
/// because a program that writes always needs that.
pub const TARGET: &str = "target_session_attrs";
const TARGETS: [&str; 2] = ["read-write", "primary"];
/// Parameters that would name one host for all.
const OF_ONE_HOST: [&str; 3] = ["host", "hostaddr", "port"];

/// The hosts in a URL can't be used. It displays as the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidHosts(String);

/// The hosts of a database, one of which is its primary.
#[derive(Clone, Debug)]
pub struct Hosts(Vec<PgConnectOptions>);

impl Hosts {
    /// Parses a URL such as `postgres://user@a,b:5433/database?target_session_attrs=read-write`. The
    /// function makes the options of a URL with one host.
    ///
    /// # Errors
    /// [`InvalidHosts`] if the hosts are none, and what the function returns.
    pub fn parse<E: From<InvalidHosts>>(
        url: &str,
        options: impl Fn(&Url) -> Result<PgConnectOptions, E>,
    ) -> Result<Self, E> {
        let invalid = |reason: &str| InvalidHosts(reason.to_owned());
        let divided = DividedUrl::divide(url).filter(|divided| divided.hosts().nth(1).is_some());
        let urls: Vec<String> = match &divided {
            Some(divided) if divided.is_ambiguous() => {
                return Err(invalid("an @, such as in a password, must be written as %40").into());
            }
            Some(divided) if divided.hosts().any(str::is_empty) => {
                return Err(invalid("a host is empty").into());
            }
            Some(divided) => divided.hosts().map(|host| divided.with_hosts(host)).collect(),
            None => vec![url.to_owned()],
        };
        let mut hosts = Vec::new();
        for url in urls {
            let mut url = Url::parse(&url).map_err(|error| InvalidHosts(error.to_string()))?;
            let mut of_one = url.query_pairs().filter(|(key, _)| OF_ONE_HOST.contains(&&**key));
            if of_one.any(|(_, value)| divided.is_some() || value.contains(',')) {
                return Err(invalid("several hosts belong before the name of the database").into());
            }
            remove_target(&mut url)?;
            hosts.push(options(&url)?);
        }
        Ok(Self(hosts))
    }

    /// Whether there is more than one.
    pub fn has_several(&self) -> bool {
        self.0.len() > 1
    }

    /// The options of one host.
    pub fn options(&self, host: usize) -> &PgConnectOptions {
        &self.0[host]
    }

    /// The options of each host.
    pub fn iter(&self) -> impl Iterator<Item = &PgConnectOptions> {
        self.0.iter()
    }

    /// Changes the options of all hosts.
    pub fn map(self, change: impl FnMut(PgConnectOptions) -> PgConnectOptions) -> Self {
        Self(self.0.into_iter().map(change).collect())
    }

    /// Gives all sessions a name, for the database.
    pub fn application_name(self, name: &str) -> Self {
        self.map(|options| options.application_name(name))
    }

    /// Gives all sessions a setting.
    pub fn setting(self, setting: (&str, &str)) -> Self {
        self.map(|options| options.options([setting]))
    }

    /// The address of a host, without user and password.
    pub fn host(&self, host: usize) -> String {
        address_of(&self.0[host])
    }

    /// The address of the database, without user and password.
    pub fn database(&self) -> String {
        let first = &self.0[0];
        let database = first.get_database().unwrap_or(first.get_username());
        let hosts: Vec<_> = self.0.iter().map(address_of).collect();
        format!("PostgreSQL database {database} at {}", hosts.join(", "))
    }
}

/// The address of a host, without user and password.
pub fn address_of(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    format!("{host}:{}", options.get_port())
}

/// sqlx doesn't know the parameter.
fn remove_target(url: &mut Url) -> Result<(), InvalidHosts> {
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    let (targets, others): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(key, _)| key == TARGET);
    if targets.is_empty() {
        return Ok(());
    }
    if let Some((_, target)) = targets.iter().find(|(_, target)| !TARGETS.contains(&&**target)) {
        let reason = format!("{TARGET} is {target:?}, and only {TARGETS:?} take writes");
        return Err(InvalidHosts(reason));
    }
    url.set_query(None);
    if !others.is_empty() {
        url.query_pairs_mut().extend_pairs(others);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions;

    use super::*;

    fn database(url: &str) -> Result<String, InvalidHosts> {
        let options = |url: &Url| {
            PgConnectOptions::from_url(url).map_err(|error| InvalidHosts(error.to_string()))
        };
        Hosts::parse(url, options).map(|hosts| hosts.database())
    }

    #[test]
    fn hosts_are_divided() {
        for (url, expected) in [
            ("postgres://u@a/d", "d at a:5432"),
            ("postgres://u:p@a,b:5433/d?target_session_attrs=read-write", "d at a:5432, b:5433"),
            (
                "postgresql://u:p,@a:1,[::1]:2,c?target_session_attrs=primary&sslmode=disable",
                "u at a:1, [::1]:2, c:5432",
            ),
            ("postgres://u@%2Frun%2Fa:1,%2Frun%2Fb:2/d", "d at /run/a:1, /run/b:2"),
            ("postgres://u@a/d?target_session_attrs=primary", "d at a:5432"),
            ("postgres://u@a/d?host=/run/a&port=7", "d at /run/a:7"),
        ] {
            assert_eq!(database(url).unwrap(), format!("PostgreSQL database {expected}"), "{url}");
        }
    }

    #[test]
    fn hosts_that_are_no_hosts_are_rejected() {
        for (url, reason) in [
            ("postgres://u@a,,b/d", "a host is empty"),
            ("postgres://u:1,q/x@a/d", "must be written as %40"),
            ("postgres://u:1,q?x@a/d", "must be written as %40"),
            ("postgres://u@a,b/d?port=5433", "several hosts belong before"),
            ("postgres://u@a/d?host=a,b", "several hosts belong before"),
            ("postgres://u@a,b:x/d", "invalid port"),
            ("postgres://u@a,b/d?target_session_attrs=any", "target_session_attrs is \"any\""),
        ] {
            let error = database(url).unwrap_err().to_string();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
