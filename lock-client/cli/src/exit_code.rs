//! The exit codes of the command.
//!
//! Those from 64 to 78 are the codes of `sysexits.h`; those from 126 are the codes of shells.

use std::fmt::Write;

use doctor::Verdict;

/// The command succeeded.
pub(crate) const SUCCESS: u8 = 0;
/// The arguments or the environment are wrong.
pub(crate) const USAGE: u8 = 64;
/// `get` found no value.
pub(crate) const NO_VALUE: u8 = 66;
/// The lock service or the storage did not answer, or rejected the request.
pub(crate) const UNAVAILABLE: u8 = doctor::NOT_EXAMINED;
/// The output could not be written to stdout.
pub(crate) const CANNOT_PRINT: u8 = 74;
/// Busy: another client holds the lock.
pub(crate) const BUSY: u8 = 75;
/// The lease was lost.
pub(crate) const LEASE_LOST: u8 = 79;
/// The storage rejected the token.
pub(crate) const TOKEN_REJECTED: u8 = 80;
/// `node status` or `node init` found a majority, but not all nodes, able to vote.
pub(crate) const DEGRADED: u8 = 81;
/// The command of `run` exists, and can't be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command of `run` does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// All codes with their meanings, as the help shows them.
const MEANINGS: [(u8, &str); 14] = [
    (SUCCESS, "success; run: the command's own exit code"),
    (Verdict::Unfit.exit_code(), "doctor: no lock can be kept here"),
    (Verdict::Unseen.exit_code(), "doctor: could not see whether a token can be issued twice"),
    (
        Verdict::UnfitForFence.exit_code(),
        "doctor: a token may be issued twice: use a storage that checks token and holder",
    ),
    (USAGE, "wrong usage"),
    (NO_VALUE, "get: the resource has no value"),
    (UNAVAILABLE, "the lock service or the storage did not answer, or rejected the request"),
    (CANNOT_PRINT, "the output could not be written to stdout"),
    (BUSY, "another client holds the lock"),
    (LEASE_LOST, "the lease was lost"),
    (TOKEN_REJECTED, "put: the storage rejected the token"),
    (DEGRADED, "node status, node init: a majority may vote, but not all nodes"),
    (NOT_EXECUTABLE, "run: the command can't be executed"),
    (NOT_FOUND, "run: the command was not found"),
];

/// Returns the exit code that a shell gives a process that a signal ended.
pub(crate) fn ended_by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

pub(crate) fn help() -> String {
    let codes = MEANINGS.map(|(code, _)| code);
    format!("Exit codes:\n{}", list(&codes))
}

/// Lists some exit codes, and those of signals, for the help of a subcommand.
///
/// # Panics
/// If a code has no meaning.
pub(crate) fn list(codes: &[u8]) -> String {
    let mut lines = String::new();
    for code in codes {
        let meaning = MEANINGS.iter().find(|(number, _)| number == code);
        let (_, meaning) = meaning.expect("every exit code has a meaning");
        writeln!(lines, " {code:>3}  {meaning}").expect("memory can be written to");
    }
    lines + " 128+n  signal n ended the command of run, or lock-client itself"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_has_all_exit_codes() {
        let readme = include_str!("../README.md");
        for (code, meaning) in MEANINGS {
            let row = format!("\n| {code} | {meaning} |\n");
            assert!(readme.contains(&row), "{row}");
        }
    }
}
