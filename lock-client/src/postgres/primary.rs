//! The primary among the hosts of a URL.

use std::{env, error::Error, sync::Arc, time::Duration};

use postgres_primary::{DividedUrl, Found, Hosts, Newest, NotFound, find_primary};
use sqlx::{
    ConnectOptions, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};

use crate::{
    service_url::{InvalidUrl, UrlSettings},
    sql::{certificates, line::Connected, pool::Connect, unparsable, url::KnownSettings},
    tls::{Certificates, NamedFiles},
};

const SETTINGS: KnownSettings = KnownSettings {
    applied: "sslmode sslrootcert sslcert sslkey host hostaddr port dbname user password \
              application_name options target_session_attrs ssl-mode ssl-root-cert ssl-ca ssl-cert \
              ssl-key statement-cache-capacity",
    without_effect: "connect_timeout client_encoding fallback_application_name keepalives \
                     keepalives_idle keepalives_interval keepalives_count tcp_user_timeout \
                     sslcompression",
};

/// How long a host may take to say what it is, in answer time-outs. A request that nobody waits for longer is
/// repeated for 4.
const PATIENCE: u32 = 2;

/// The hosts of a database, and what is known of its primary. Clones share that.
#[derive(Clone)]
pub(super) struct Primary {
    hosts: Hosts,
    newest: Newest,
    /// `None` if the connections need none.
    certificates: Option<Certificates>,
}

impl Primary {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let url = &SETTINGS.without_ineffective(&with_environment(url));
        let parsed = Hosts::parse(url, |url| {
            let options = PgConnectOptions::from_url(url)?;
            // PgBouncer rejects a connection that sets it. A logged statement would show whole holders.
            Ok(options.extra_float_digits(None).disable_statement_logging())
        });
        let hosts =
            parsed.map_err(|error: Box<dyn Error + Send + Sync>| unparsable(url, &error))?;
        SETTINGS.check(url)?;
        let certificates = certificates::read(named_files(url), is_verified(hosts.options(0)))?;
        Ok(Self { hosts, newest: Newest::default(), certificates })
    }

    /// The address of the database, without user and password.
    pub(super) fn address(&self) -> String {
        let first = self.hosts.options(0);
        let database = first.get_database().unwrap_or(first.get_username());
        let hosts: Vec<_> = self.hosts.iter().map(postgres_primary::address_of).collect();
        format!("postgres://{}/{database}", hosts.join(","))
    }

    /// Makes connections to the primary of the moment. None is used any more once a newer one is known.
    pub(super) fn connect(&self, answer_timeout: Duration) -> Connect<sqlx::Postgres> {
        let own = self.clone();
        Arc::new(move || {
            let own = own.clone();
            Box::pin(async move {
                let (options, asked) = own.find(answer_timeout).await?;
                let Some((connection, timeline)) = asked else {
                    return options.connect().await.map(Connected::new);
                };
                let is_newest = move || own.newest.timeline() == Some(timeline);
                Ok(Connected { connection, is_current: Arc::new(is_newest) })
            })
        })
    }

    /// The options of the primary; if it was asked, over which connection, and its timeline.
    pub(super) async fn find(
        &self,
        answer_timeout: Duration,
    ) -> Result<(PgConnectOptions, Option<(PgConnection, i64)>), sqlx::Error> {
        let hosts = self.hosts.clone().map(|options| self.with_certificates(options));
        let found = find_primary(&hosts, &self.newest, answer_timeout * PATIENCE).await;
        let Found { host, asked } = found.map_err(|error| match error {
            NotFound::Denied(error) => error,
            error => sqlx::Error::config(error),
        })?;
        Ok((hosts.options(host).clone(), asked))
    }

    /// Adds the certificates that are on disk now.
    fn with_certificates(&self, mut options: PgConnectOptions) -> PgConnectOptions {
        let Some(files) = self.certificates.as_ref().map(Certificates::current) else {
            return options;
        };
        if is_verified(&options) {
            options = options.ssl_root_cert_from_pem(files.authorities());
        }
        match files.identity() {
            Some([certificate, key]) => options
                .ssl_client_cert_from_pem(certificate.bytes())
                .ssl_client_key_from_pem(key.bytes()),
            None => options,
        }
    }
}

fn is_verified(options: &PgConnectOptions) -> bool {
    matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull)
}

/// The files of certificates that a URL names, or the environment.
fn named_files(url: &str) -> NamedFiles {
    let settings = UrlSettings::parse(url.split_once('?').map_or("", |(_, query)| query));
    let file = |names: &[&str], variable| {
        let named = names.iter().find_map(|name| settings.get(name)).map(str::to_owned);
        named.or_else(|| env::var(variable).ok())
    };
    let authority = file(&["sslrootcert", "ssl-root-cert", "ssl-ca"], "PGSSLROOTCERT");
    NamedFiles {
        authority: ("sslrootcert", authority),
        certificate: ("sslcert", file(&["sslcert", "ssl-cert"], "PGSSLCERT")),
        key: ("sslkey", file(&["sslkey", "ssl-key"], "PGSSLKEY")),
    }
}

/// Writes several hosts of the environment (`PGHOST` and `PGPORT`) into a URL that names none.
pub fn with_environment(url: &str) -> String {
    let [hosts, ports] = ["PGHOST", "PGPORT"].map(|name| env::var(name).unwrap_or_default());
    with_hosts_of_environment(url, &hosts, &ports)
}

fn with_hosts_of_environment(url: &str, hosts: &str, ports: &str) -> String {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mut settings = form_urlencoded::parse(query.as_bytes());
    let names_host = settings.any(|(name, _)| ["host", "hostaddr"].contains(&&*name));
    let divided =
        DividedUrl::divide(url).filter(|divided| divided.written_hosts().is_empty() && !names_host);
    let Some(divided) = divided.filter(|_| hosts.contains(',')) else { return url.to_owned() };
    let ports: Vec<_> = ports.split(',').collect();
    let with_port = |(place, host): (usize, &str)| {
        // As in libpq, one port is that of all hosts.
        let port = ports.get(place).or(ports.first().filter(|_| ports.len() == 1));
        let host = host.replace('/', "%2F");
        match port.filter(|port| !port.is_empty()) {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    };
    divided.with_hosts(&hosts.split(',').enumerate().map(with_port).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_of_the_environment_are_those_of_a_url_without_any() {
        for (url, hosts, ports, expected) in [
            ("postgres://u@/d", "a,b", "", "postgres://u@a,b/d"),
            ("postgres:///d?sslmode=require", "a,b", "7", "postgres://a:7,b:7/d?sslmode=require"),
            ("postgres://", "a,/run/b", "1,2", "postgres://a:1,%2Frun%2Fb:2"),
            ("postgres:///d", "a", "7", "postgres:///d"),
            ("postgres:///d?user=u&host=/run/b", "a,b", "7", "postgres:///d?user=u&host=/run/b"),
            ("postgres://h/d", "a,b", "7", "postgres://h/d"),
        ] {
            assert_eq!(with_hosts_of_environment(url, hosts, ports), expected);
        }
    }
}
