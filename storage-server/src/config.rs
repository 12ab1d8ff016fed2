//! How the server treats requests.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use clap::{Args, ValueEnum, builder::BoolishValueParser};
use tokio::net::TcpListener;

use crate::{
    access::{Access, ceiling::Ceiling},
    audit::file::AuditLog,
    tls::Tls,
};

const DEFAULT_MAX_CONNECTIONS: u32 = 10_000;
const DEFAULT_MAX_BYTES_IN_FLIGHT: u32 = 256 << 20;
const DEFAULT_MAX_VALUE_BYTES: u32 = 1 << 20;
/// Longer than any usual provider of Terraform takes for one resource, during which a run uploads nothing.
const DEFAULT_TERRAFORM_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// A shorter ttl would expire during the next request.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// The largest limit on a value's size that both databases can bear.
const HIGHEST_MAX_VALUE_BYTES: u32 = 256 << 20;

/// How the server treats requests.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// What to do with operations that the fencing rule rejects.
    #[arg(long, env = "FENCED_ENFORCEMENT", default_value = "enforce", value_name = "MODE")]
    pub enforcement: Enforcement,

    /// How high a token may be: a duration ahead of the server's clock, a token, or none. Whatever the
    /// ceiling is, a token may be up to 1000 above the fence. A scope of an identity may have another
    /// ceiling.
    #[arg(long, env = "FENCED_TOKEN_CEILING", default_value_t, value_name = "CEILING")]
    pub token_ceiling: Ceiling,

    /// The size of the largest value that is accepted, in bytes.
    #[arg(
        long,
        env = "FENCED_MAX_VALUE_BYTES",
        default_value_t = DEFAULT_MAX_VALUE_BYTES,
        value_parser = clap::value_parser!(u32).range(..=i64::from(HIGHEST_MAX_VALUE_BYTES)),
        value_name = "BYTES"
    )]
    pub max_value_bytes: u32,

    /// How long a lock of Terraform or OpenTofu is held since it was acquired or its run uploaded a
    /// state. An address with `?ttl=` has its own.
    #[arg(
        long,
        env = "FENCED_TERRAFORM_TTL",
        default_value = "12h",
        value_parser = parse_ttl,
        value_name = "DURATION"
    )]
    pub terraform_ttl: Duration,

    /// How many connections clients may have, if the limit on open files allows as many. Beyond,
    /// an idle connection is closed for a new one.
    #[arg(
        long,
        env = "FENCED_MAX_CONNECTIONS",
        default_value_t = DEFAULT_MAX_CONNECTIONS,
        value_parser = clap::value_parser!(u32).range(1..),
        value_name = "NUMBER"
    )]
    pub max_connections: u32,

    /// How many bytes the server holds for clients that send slowly or don't read: half of them for
    /// bodies, a quarter for answers, and the rest for heads, and for bodies and answers of at most
    /// 64 KiB. One value always fits.
    #[arg(
        long,
        env = "FENCED_MAX_BYTES_IN_FLIGHT",
        default_value_t = DEFAULT_MAX_BYTES_IN_FLIGHT,
        value_name = "BYTES"
    )]
    pub max_bytes_in_flight: u32,

    /// How many requests each identity may send a second, on average, and how many at once. Without an
    /// identity, the client's address counts.
    #[arg(long, env = "FENCED_REQUESTS_PER_SECOND", value_name = "NUMBER")]
    pub requests_per_second: Option<NonZeroU32>,

    /// Log a line for each request.
    #[arg(long, env = "FENCED_ACCESS_LOG", value_parser = BoolishValueParser::new())]
    pub access_log: bool,

    /// Who may do what. The command reads this from the auth file.
    #[arg(skip)]
    pub access: Access,

    /// Where rejections and the actions of operators are recorded; `None` if in the server's own log.
    #[arg(skip)]
    pub audit_log: Option<AuditLog>,

    /// How connections are encrypted; `None` if they are not.
    #[arg(skip)]
    pub tls: Option<Tls>,

    /// Which names in `Host` are accepted. The command accepts those of loopback if it listens there.
    #[arg(skip)]
    pub hosts: Hosts,

    /// Where `/metrics` is served, to every client. Without it, `/metrics` is beside everything else,
    /// and with an auth file only for operators.
    #[arg(skip)]
    pub metrics_listener: Option<Arc<TcpListener>>,

    /// How connections to `metrics_listener` are encrypted; `None` if they are not.
    #[arg(skip)]
    pub metrics_tls: Option<Tls>,
}

impl Default for Config {
    /// The defaults of the command.
    fn default() -> Self {
        Self {
            enforcement: Enforcement::Enforce,
            token_ceiling: Ceiling::default(),
            max_value_bytes: DEFAULT_MAX_VALUE_BYTES,
            terraform_ttl: DEFAULT_TERRAFORM_TTL,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_bytes_in_flight: DEFAULT_MAX_BYTES_IN_FLIGHT,
            requests_per_second: None,
            access_log: false,
            access: Access::default(),
            audit_log: None,
            tls: None,
            hosts: Hosts::default(),
            metrics_listener: None,
            metrics_tls: None,
        }
    }
}

/// Parses how long a lock is held.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, InvalidTtl> {
    let ttl = humantime::parse_duration(text).map_err(|_| InvalidTtl)?;
    if ttl < SHORTEST_TTL { Err(InvalidTtl) } else { Ok(ttl) }
}

/// The text is not a ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ttl is a duration of at least 1s, such as 30m or 12h")]
pub(crate) struct InvalidTtl;

/// Which names of the server a request may have in `Host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// All names.
    #[default]
    Any,
    /// `localhost` and loopback addresses. So no page on the web can reach the server through a browser
    /// by letting its own name resolve to loopback (DNS rebinding).
    Loopback,
}

/// What the server does with operations that the fencing rule rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Enforcement {
    /// Reject them.
    Enforce,
    /// Accept them, and log each: the way to introduce fencing on a live system.
    Report,
    /// Accept them silently. There is no fencing at all; for demonstrations only.
    Off,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        config: Config,
    }

    #[test]
    fn ttl_is_a_duration() {
        let parsed = Command::parse_from(["storage-server"]).config.terraform_ttl;
        assert_eq!(parsed, Config::default().terraform_ttl);
        assert_eq!(parse_ttl("90m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "0s", "999ms", "1", "-1h", "none"] {
            assert_eq!(parse_ttl(wrong), Err(InvalidTtl), "{wrong:?}");
        }
    }
}
