//! A terminal of its own, and the processes on it.

use rustix::process::Pid;
use tempfile::TempDir;
use testbed::{Redis, process::Process, wait::until};

use crate::{
    command::{PATIENCE, locks, state, without_terminal},
    names::name,
    programs::LOCK_CLIENT,
};

pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_BACKSLASH: &str = "\u{1c}";
pub(crate) const CTRL_Z: &str = "\u{1a}";
/// A shell with job control that prints only what its commands print.
pub(crate) const SHELL: &str = "stty -echo; exec env PS1= bash --norc --noediting -i";
/// Prints its process id and that of `run`, and each SIGTERM and SIGUSR1.
const WORKER: &str = "trap 'echo TERM' TERM; trap 'echo USR1' USR1; echo pids $$ $PPID
    while [ ! -e \"$END\" ]; do sleep 0.02 & wait; done; echo worker over";

/// A terminal of its own, and the processes on it.
pub(crate) struct Terminal {
    pub(crate) process: Process,
    pub(crate) folder: TempDir,
}

impl Terminal {
    /// Runs a command of the shell on a terminal. It has the file `$WORKER`, and `$LC` before it runs
    /// the worker under the lock `r`. The worker ends when the file `$END` exists.
    pub(crate) fn start(redis: &Redis, script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |file: &str| folder.path().join(file);
        std::fs::write(path("worker"), WORKER).unwrap();
        let mut command = without_terminal("script");
        command.args(["-qec", script, "/dev/null"]).env("SHELL", "/bin/sh");
        command.env("LC", LOCK_CLIENT).env("FENCED_LOCKS", redis.url());
        command.env("WORKER", path("worker")).env("END", path("end"));
        let process = Process::spawn("terminal", &command, folder.path()).unwrap();
        Self { process, folder }
    }

    /// Types a line, or a key.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.process.write_line(line).unwrap();
    }

    /// Waits for a line with a text, and returns all until there.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut printed = String::new();
        while !printed.contains(text) {
            let line = self.process.line(PATIENCE).await;
            printed += &line.unwrap_or_else(|error| panic!("{text}: {error}, after {printed:?}"));
            printed.push('\n');
        }
        printed
    }

    /// The process ids of the worker and its `run`.
    pub(crate) async fn pids(&mut self) -> (u32, u32) {
        let printed = self.until("pids ").await;
        let pids: Vec<u32> = printed
            .split("pids ")
            .nth(1)
            .unwrap()
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        (pids[0], pids[1])
    }

    pub(crate) fn end_worker(&self) {
        std::fs::write(self.folder.path().join("end"), "").unwrap();
    }
}

pub(crate) fn pid(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// The fields of a process from its state on.
pub(crate) fn stat(pid: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').map(ToOwned::to_owned).collect()
}

pub(crate) fn is_stopped(pid: u32) -> bool {
    state(pid) == 'T'
}

pub(crate) fn parent(pid: u32) -> u32 {
    stat(pid)[1].parse().unwrap()
}

/// Waits until processes are all stopped, or all not.
pub(crate) async fn until_stopped(pids: &[u32], stopped: bool) {
    let all = || Ok(pids.iter().all(|pid| is_stopped(*pid) == stopped));
    until(PATIENCE, all).await.unwrap();
}

pub(crate) async fn until_in_foreground(pid: u32) {
    let foreground = || {
        let fields = stat(pid);
        Ok(fields[2] == fields[5])
    };
    until(PATIENCE, foreground).await.unwrap();
}

pub(crate) async fn is_free(redis: &Redis) -> anyhow::Result<bool> {
    Ok(locks(redis).status(&name("r")).await?.held.is_none())
}
