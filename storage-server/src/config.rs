//! The server's configuration.

use clap::{Parser, ValueEnum};

/// An HTTP service that persists the highest fencing token per resource and refuses stale writes.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "FENCED_LISTEN", default_value = "127.0.0.1:8034", value_name = "ADDRESS")]
    pub listen: String,

    /// The database: sqlite:FILE, or postgres://USER@HOST/DATABASE.
    #[arg(
        long,
        env = "FENCED_DATABASE_URL",
        default_value = "sqlite:fenced.db",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub database_url: String,

    /// What to do with writes that the fence refuses.
    #[arg(long, env = "FENCED_ENFORCEMENT", default_value = "enforce", value_name = "MODE")]
    pub enforcement: Enforcement,

    /// The size of the largest value accepted, in bytes.
    #[arg(
        long,
        env = "FENCED_MAX_VALUE_BYTES",
        default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u32).range(..=MAX_VALUE_BYTES as i64),
        value_name = "BYTES"
    )]
    pub max_value_bytes: u32,
}

/// The highest limit on a value's size that the databases bear, in bytes.
const MAX_VALUE_BYTES: u32 = 256 << 20;

/// What the server does with writes that the fence refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Enforcement {
    /// Refuse them.
    Enforce,
    /// Accept them and log each: the way to adopt fencing on a live system.
    Report,
    /// Accept them: no fencing at all, for demonstrations.
    Off,
}
