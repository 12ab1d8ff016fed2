//! The same measurements with commits that take longer.
//!
//! A disk that commits in 0.2 ms makes ratios compare processor time. So strace runs this program once
//! more, and prolongs each system call that waits for the disk: those of the servers, and of SQLite in
//! this program. Nothing else is stopped or slowed down.

use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;
use testbed::installed;

/// By how many microseconds each commit is prolonged. The last of the options has it too.
const DELAY_US: f64 = 2000.0;
const OPTIONS: [&str; 9] = [
    "--follow-forks",
    "--seccomp-bpf",
    "--quiet=all",
    "--output",
    "/dev/null",
    "--trace",
    "fsync,fdatasync",
    "--inject",
    "fsync,fdatasync:delay_exit=2000",
];

/// Returns strace with its options, still without the program that it runs.
///
/// # Errors
/// If it is not installed, or may not trace processes here.
pub(super) fn strace() -> anyhow::Result<Command> {
    let strace = installed("strace", &[], "the package strace, on Linux (`make strace`)")?;
    let command = || {
        let mut command = Command::new(&strace);
        command.args(OPTIONS);
        command
    };
    let output = command().arg("true").output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && stderr.is_empty(), "strace can't be used: {stderr}");
    Ok(command())
}

/// Runs `lab bench locks` for one service under strace, and returns its figures as text and as JSON.
pub(super) fn measure(
    mut strace: Command,
    arguments: &[String],
) -> anyhow::Result<(String, Value)> {
    let output = strace
        .arg(std::env::current_exe()?)
        .args(["bench", "locks", "--json", "--commits-are-slow"])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the bench with slow commits failed");
    let mut printed: Value = serde_json::from_slice(&output.stdout)?;
    let mut figures = printed["services"][0].take();
    let least_us = figures["uncontended"][0]["p50_us"].as_f64();
    let least_us = least_us.context("the least was not measured")?;
    ensure!(least_us > 2.0 * DELAY_US, "strace did not prolong commits: two took {least_us} us");
    let text = figures.as_object_mut().and_then(|figures| figures.remove("text"));
    let text = text.as_ref().and_then(Value::as_str).context("the figures have no text")?;
    Ok((text.to_owned(), figures))
}
