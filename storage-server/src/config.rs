//! How the server treats requests.

use clap::{Args, ValueEnum};

const DEFAULT_MAX_CONNECTIONS: u32 = 10_000;
const DEFAULT_MAX_BYTES_IN_FLIGHT: u32 = 256 << 20;
const DEFAULT_MAX_VALUE_BYTES: u32 = 1 << 20;
/// The largest limit on a value's size that both databases can bear.
const HIGHEST_MAX_VALUE_BYTES: u32 = 256 << 20;

/// How the server treats requests.
#[derive(Clone, Copy, Debug, Args)]
pub struct Config {
    /// What to do with operations that the fencing rule rejects.
    #[arg(long, env = "FENCED_ENFORCEMENT", default_value = "enforce", value_name = "MODE")]
    pub enforcement: Enforcement,

    /// The size of the largest value that is accepted, in bytes.
    #[arg(
        long,
        env = "FENCED_MAX_VALUE_BYTES",
        default_value_t = DEFAULT_MAX_VALUE_BYTES,
        value_parser = clap::value_parser!(u32).range(..=i64::from(HIGHEST_MAX_VALUE_BYTES)),
        value_name = "BYTES"
    )]
    pub max_value_bytes: u32,

    /// How many connections clients may have, if the limit on open files allows as many. Beyond,
    /// the connection that has been idle the longest is closed for a new one.
    #[arg(
        long,
        env = "FENCED_MAX_CONNECTIONS",
        default_value_t = DEFAULT_MAX_CONNECTIONS,
        value_parser = clap::value_parser!(u32).range(1..),
        value_name = "NUMBER"
    )]
    pub max_connections: u32,

    /// How many bytes of values the server holds for clients, in bytes: half of them for bodies, an
    /// eighth for bodies of at most 64 KiB, and the rest for answers. One value has room in any
    /// case.
    #[arg(
        long,
        env = "FENCED_MAX_BYTES_IN_FLIGHT",
        default_value_t = DEFAULT_MAX_BYTES_IN_FLIGHT,
        value_name = "BYTES"
    )]
    pub max_bytes_in_flight: u32,
}

impl Default for Config {
    /// The defaults of the command.
    fn default() -> Self {
        Self {
            enforcement: Enforcement::Enforce,
            max_value_bytes: DEFAULT_MAX_VALUE_BYTES,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_bytes_in_flight: DEFAULT_MAX_BYTES_IN_FLIGHT,
        }
    }
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
