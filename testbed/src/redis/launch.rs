//! The process of a Redis.

use std::{path::Path, process::Command};

use super::listener::Listener;
use crate::{clock::Clock, package::installed, process::Process};

/// The file that makes a Redis a Sentinel, in its folder. The Sentinel rewrites it.
pub(super) const SENTINEL_SETTINGS: &str = "sentinel.conf";
/// The socket of a Redis, in its folder.
pub(super) const SOCKET: &str = "redis.sock";
/// The snapshot of a Redis, in its folder.
pub(super) const SNAPSHOT: &str = "dump.rdb";
/// The folder of what a Redis has appended, in its folder.
pub(super) const APPEND_ONLY_FILES: &str = "appendonlydir";
/// The log of a Redis, in its folder.
pub(super) const LOG: &str = "redis.log";

/// Starts the process of a Redis in its folder, with further arguments.
pub(super) fn launch(
    folder: &Path,
    listener: &Listener,
    arguments: &[String],
) -> anyhow::Result<Process> {
    let program = installed("redis-server", &[], "the package redis-server (brew: redis)")?;
    let mut command = Command::new(program);
    let sentinel_settings = folder.join(SENTINEL_SETTINGS);
    if sentinel_settings.is_file() {
        // These have to be the first arguments.
        command.arg(sentinel_settings).arg("--sentinel");
    } else {
        command.args(["--save", "", "--appendonly", "no"]);
        // A primary would wait for 5 s for further replicas before it serves the first.
        command.args(["--repl-diskless-sync-delay", "0"]);
    }
    command.args(["--bind", "127.0.0.1"]).args(listener.arguments(folder));
    command.arg("--unixsocket").arg(folder.join(SOCKET));
    // It logs to a file: it would stop at a pipe that is full because nobody reads it.
    command.arg("--logfile").arg(folder.join(LOG));
    command.arg("--dir").arg(folder).args(arguments);
    if let Some(clock) = Clock::find(folder) {
        clock.preload(&mut command);
    }
    Process::spawn("redis", &command, folder)
}
