//! The arguments of `run`, and its help.

use std::ffi::OsString;

use clap::Args;
use fence::ResourceName;

use super::lost_lease::OnLost;
use crate::{acquisition::AcquireOptions, exit_code, handle::parse_name};

const HELP: &str = "\
The lock is renewed at a third of its ttl while the command runs. It is released when the command \
and all processes that it has started have ended. The command has these environment variables:

  FENCING_TOKEN          the fencing token
  FENCING_HOLDER         the holder: the proof of holding; keep it secret
  FENCING_RESOURCE       NAME
  FENCING_RESOURCE_PATH  NAME, percent-encoded for the path of a URL; its slashes stay
  FENCING_GRANT          with the holder, the identity of this ownership
  FENCING_DEADLINE_MS    when the first grant ends, in Unix time
  FENCING_LOCK_SERVICE   the servers that keep the lock, without a password
  FENCING_OUTER          the leases of this run and its outer ones, as JSON, for runs within; keep it secret
  FENCED_LOCKS           the lock service, unless its URL has a password

The token is what protects: send it with every write, to a storage that checks it. When the lease \
is lost, run also ends the command, but that may come too late: if this process or the whole \
machine was paused, the command may go on without the lock for a while.

If the lease can't be renewed, the command gets SIGTERM early enough that --kill-after, and then \
SIGKILL, end it before the ttl ends. If another client has acquired the lock, or the lock was \
deleted, the command gets SIGTERM at the next renewal, and SIGKILL after --kill-after, or when the \
lease would have ended, if that is sooner. The exit code is then 79, whatever the command did.

SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGALRM are forwarded to the command. Before \
it has started, any of these ends run. A signal that was ignored when this process started stays \
ignored. One that can't reach the command, because it runs as another user, is reported. If a signal \
ends the command or the wait, this process ends by the same one, so that a shell ends its loop; as \
the first process of a container, it exits with 128 + n.

In the foreground of a terminal, the command is in the process group of run. It reads the terminal and \
receives Ctrl-C, Ctrl-\\ and Ctrl-Z from it; run does not forward these. Everywhere else (in the \
background, under cron or a service manager) the command has a group of its own, and run forwards \
each signal that it receives, also Ctrl-Z.

When Ctrl-Z has stopped the command, run stops all else that the command has started, and then \
itself. Nothing is renewed then: after the ttl, the command is killed when run continues. run goes on, \
with the command, if the command does not stop (it ignores Ctrl-Z, or has a session of its own), if \
something that it has started can't be stopped, and elsewhere than on Linux. While run releases the \
lock, Ctrl-Z does not stop it.

Some cases look alike to run. In the foreground, a signal that a process sends to the whole group \
reaches the command twice. So does one to all processes of a service: in a unit of systemd, set \
KillMode=mixed. timeout signals run and then its whole group: so SIGINT, SIGQUIT or SIGTERM of the \
group's leader that comes twice within 250 ms counts once, and another signal (timeout -s) may reach the command \
twice. If run was not started in the foreground, a signal that a process sends to the group of run \
reaches the command, and not what it has started. macOS does not show who sends a signal: in the \
foreground, SIGHUP, SIGINT, SIGQUIT and SIGTSTP count as the terminal's. After `run … &` and `fg`, the \
command still is in the background: if it reads the terminal, it stops, and run says so.

As with flock, a process that the command has left behind keeps the lock, even a daemon. run waits \
for it, and says so after a second. With --close, and elsewhere than on Linux, run waits for the \
command itself alone.

A process that is left behind gets SIGTERM, and SIGKILL after --kill-after, if a signal ended the \
command, if run had received SIGTERM, or if run receives a signal while it waits. If the lease is \
lost, all processes get SIGTERM and SIGKILL at the same time as the command, with --close too. If any \
of them still lives 2 s after SIGKILL, run says so and ends. If the lease is not \
lost, such a process keeps the lock, and run waits for it.

Out of reach are processes of other users, if this user may not signal them or /proc hides them \
(hidepid), and what another program has started for the command, such as docker, systemd-run, at or \
ssh. Elsewhere than on Linux, all but the command is.

If this process is killed, even by SIGKILL, the command is killed with it (on Linux, and unless it \
is a set-user-ID program). What it has started lives on, without the lock. If Ctrl-Z had stopped that, \
it gets SIGHUP and continues, but not while the shell has a process of the same job, as in \
`run … | tee log`, nor in a session of its own (setsid); then it stays stopped until SIGCONT.

If the lock service does not answer a release, run repeats it, and says so after a while. SIGHUP, \
SIGINT, SIGQUIT or SIGTERM ends that: the lock is free when its ttl ends.

Within the command, run with the same NAME in the same lock service runs its command at once, under \
the lock that is already held, with its own --kill-after and --max-hold. The outer run writes the \
deadline of its lease to a file in the folder for temporary files (TMPDIR), and the inner one ends \
its command by then, with exit code 79. If it can't read the file, as on another machine or as \
another user, it counts on FENCING_DEADLINE_MS alone. If the lock was lost before, or the environment \
is left over from a run that has ended, run says so and acquires the lock anew. This works through \
runs of other locks too.

While run waits for the lock, a terminal shows who holds it, for how long, and how many clients \
wait before.

--status-fd N writes JSON lines to the descriptor N, which the command inherits too: waiting (after \
a second), acquired, re-entered, busy, unavailable, interrupted, cannot-run, started, lost, exited \
(with the command's own code), killed (with the signal), released, not-held, not-released. It never \
waits for the reader: when run ends, lines that the reader has not taken are dropped.

Exit codes: the command's own, or
";

const HELP_END: &str = "
126 and 127 are found before the lock is acquired, as far as possible.

Example:
  lock-client run invoice-7 --wait 10s -- sh -c '
    curl -X PUT -H \"Fencing-Token: $FENCING_TOKEN\" \\
      -H \"Fencing-Holder: $FENCING_HOLDER\" \\
      -d paid http://127.0.0.1:8034/v1/resources/$FENCING_RESOURCE_PATH'";

const EXIT_CODES: [u8; 6] = [
    exit_code::USAGE,
    exit_code::UNAVAILABLE,
    exit_code::BUSY,
    exit_code::LEASE_LOST,
    exit_code::NOT_EXECUTABLE,
    exit_code::NOT_FOUND,
];

pub(crate) fn help() -> String {
    format!("{HELP}{}{HELP_END}", exit_code::list(&EXIT_CODES))
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The lock's name
    #[arg(value_parser = parse_name)]
    pub(super) name: ResourceName,

    #[command(flatten)]
    pub(super) terms: AcquireOptions,

    /// What to do to the command when the lease is lost
    ///
    /// The exit code is 79 in any case.
    #[arg(long, value_enum, default_value = "term", value_name = "ACTION")]
    pub(super) on_lost: OnLost,

    /// How long the command has between SIGTERM and SIGKILL, at most half of the ttl
    /// [default: 5s, or a third of the ttl if that is shorter]
    #[arg(long, value_name = "DURATION")]
    pub(super) kill_after: Option<humantime::Duration>,

    /// How long the lock may be held; then its lease is lost, and --on-lost applies [default: as
    /// long as the command runs]
    ///
    /// The command gets SIGTERM so early that --kill-after has passed by then.
    #[arg(long, value_name = "DURATION")]
    pub(super) max_hold: Option<humantime::Duration>,

    /// The exit code, instead of 75, if another client holds the lock
    #[arg(long, value_name = "N")]
    pub(super) conflict_exit_code: Option<u8>,

    /// If another client holds the lock, print nothing and exit with 0; wait only if --wait is
    /// given
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub(super) skip_if_busy: bool,

    /// Release the lock when the command itself has ended, though processes that it has started may
    /// go on working. A lost lease ends them all the same
    #[arg(long)]
    pub(super) close: bool,

    /// Report each step as a JSON line on this open file descriptor
    #[arg(long, value_name = "N")]
    pub(super) status_fd: Option<u32>,

    /// The command to run
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<OsString>,
}
