//! The hosts in the URL of a PostgreSQL.

use lock_client::postgres::with_environment;
use postgres_primary::{Hosts, InvalidHosts};
use sqlx::{ConnectOptions, postgres::PgConnectOptions};

/// Why the hosts can't be used.
#[derive(Debug)]
pub(crate) struct Unusable(pub(crate) String);

impl From<InvalidHosts> for Unusable {
    fn from(error: InvalidHosts) -> Self {
        Self(error.to_string())
    }
}

/// Parses a URL by which locks were opened. The environment may have a part of the address.
pub(crate) fn postgres_hosts(url: &str) -> Result<Hosts, Unusable> {
    Hosts::parse(&with_environment(url), |url| {
        let options =
            PgConnectOptions::from_url(url).map_err(|error| Unusable(error.to_string()))?;
        // PgBouncer rejects a connection that sets it.
        Ok(options.extra_float_digits(None))
    })
}
