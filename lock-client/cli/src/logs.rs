//! Logs on stderr, for `--verbose` and `RUST_LOG`.

use std::{
    env,
    io::{self, IsTerminal},
};

use tracing_subscriber::EnvFilter;

use crate::stderr::Logs;

/// What `--verbose` logs.
const VERBOSE: &str = "lock_client=debug,lock_client_cli=debug";

/// Starts the logs, if they were asked for. `RUST_LOG` decides before `--verbose`.
pub(crate) fn start(verbose: bool) {
    let filter = match env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ if verbose => VERBOSE.to_owned(),
        _ => return,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(|| Logs)
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(EnvFilter::builder().parse_lossy(filter));
    // A program that runs this command as a part of itself may have a subscriber already.
    let _ = subscriber.try_init();
}
