//! The processes that the command has started, and those that they have started.
//!
//! This process is their subreaper (`PR_SET_CHILD_SUBREAPER`, see `prctl(2)`): if the parent of one
//! ends, it becomes a child of this process. A daemon does too. So they all have ended when this
//! process has no child left but those that it had before. A `/proc` that is mounted with `hidepid`
//! hides processes of other users.

use std::{
    collections::{HashMap, HashSet},
    fs, io, mem,
    os::fd::OwnedFd,
    path::PathBuf,
};

#[cfg(target_os = "linux")]
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, getpid, kill_process};

use crate::{failure::Failure, process::Process};

/// The name of the file that each `run` keeps open.
const MARK: &str = "lock-client-run";

/// A process, and when it started: a later process may have its id.
type Identity = (Pid, i64);

/// The processes that the command has started, and those that they have started.
#[derive(Debug)]
pub(super) struct Descendants {
    /// The processes that there were before: children of a shell that has executed this program in its
    /// own place, with theirs.
    earlier: HashSet<Identity>,
    /// By this open file, an outer `run` recognises this process. A program's own file would not show
    /// it: the same one may have other subcommands, and another one the subcommand `run`.
    _mark: Option<OwnedFd>,
    /// The signal that ends the descendants, once one was sent.
    ending: Option<Signal>,
    /// The processes that were sent that signal.
    signalled: HashSet<Identity>,
}

impl Descendants {
    /// Makes this process the subreaper of all processes that it will start.
    pub(super) fn adopt() -> Result<Self, Failure> {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid())).map_err(|error| {
            let error = format!("can't adopt processes ({error}); run --close does not need that");
            Failure::unavailable(error)
        })?;
        let of_ours = fs::read_link("/proc/self").is_ok_and(|this| {
            this.to_str().and_then(|pid| pid.parse().ok()) == Some(getpid().as_raw_pid())
        });
        let earlier = processes().ok().filter(|_| of_ours).ok_or_else(|| {
            Failure::unavailable(
                "/proc can't be read, or shows another PID namespace; run --close does not need it",
            )
        })?;
        let earlier = earlier.into_iter().map(|(pid, process)| (pid, process.started)).collect();
        Ok(Self { earlier, _mark: mark(), ending: None, signalled: HashSet::new() })
    }

    pub(super) fn any_left(&self) -> bool {
        // If that can't be seen, some may be left.
        self.living().map_or(true, |living| !living.is_empty())
    }

    pub(super) fn are_in(&self, group: i32) -> bool {
        self.living().unwrap_or_default().iter().any(|(_, process)| process.group == group)
    }

    /// Sends all descendants but the command SIGTERM, or SIGKILL.
    pub(super) fn end(&mut self, signal: Signal, command: Pid) {
        if self.ending == Some(Signal::KILL) {
            return;
        }
        if self.ending != Some(signal) {
            self.ending = Some(signal);
            self.signalled.clear();
        }
        self.signal_new(signal, |pid, _| pid != command);
    }

    /// The signal that was sent to end them.
    pub(super) fn ending(&self) -> Option<Signal> {
        self.ending
    }

    /// Sends the last signal to descendants that did not exist, or were not seen, when it was sent:
    /// SIGKILL to all, and SIGTERM to orphans.
    pub(super) fn end_new(&mut self) {
        let this = getpid().as_raw_pid();
        if let Some(signal) = self.ending {
            self.signal_new(signal, |_, process| signal == Signal::KILL || process.parent == this);
        }
    }

    /// Sends the signal that ends them to those that it was not sent to.
    fn signal_new(&mut self, signal: Signal, is_meant: impl Fn(Pid, &Process) -> bool) {
        let mut signalled = mem::take(&mut self.signalled);
        self.signal_others(signal, &mut signalled, is_meant);
        self.signalled = signalled;
    }

    /// Stops all that run. Returns whether each was reached.
    pub(super) fn stop(&self) -> bool {
        self.signal_others(Signal::STOP, &mut HashSet::new(), |_, process| !process.is_stopped)
    }

    /// Lets all continue. Some may not have stopped yet, and without SIGCONT they would stop later.
    pub(super) fn resume(&self) {
        for (pid, _) in self.living().unwrap_or_default() {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Signals those that were not signalled. Returns whether each was reached: one may run as another
    /// user.
    fn signal_others(
        &self,
        signal: Signal,
        signalled: &mut HashSet<Identity>,
        is_meant: impl Fn(Pid, &Process) -> bool,
    ) -> bool {
        let mut all = true;
        loop {
            let mut any = false;
            let Ok(living) = self.living() else { return false };
            for (pid, process) in living {
                if is_meant(pid, &process) && signalled.insert((pid, process.started)) {
                    let sent = self.send(signal, pid);
                    any |= sent.is_ok();
                    // Otherwise it has ended.
                    all &= sent.is_ok() || Process::read(pid).is_none_or(|left| left.is_zombie);
                }
            }
            // A process that forks meanwhile leaves a child that the next look finds. After SIGTERM, a
            // process may start others to clean up: they need their time.
            if !any || signal == Signal::TERM {
                return all;
            }
        }
    }

    /// Sends a signal. A `run` within passes SIGTERM on to all that it has started, not to its command
    /// alone.
    pub(super) fn send(&self, signal: Signal, pid: Pid) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if signal == Signal::TERM && is_run(pid) {
            return inheritance::queue(pid.as_raw_pid(), signal.as_raw());
        }
        Ok(kill_process(pid, signal)?)
    }

    /// Describes those that are left: the first one, and how many more there are.
    pub(super) fn describe(&self) -> String {
        let living = self.living().unwrap_or_default();
        let Some((first, _)) = living.first() else {
            return "a process".to_owned();
        };
        // Without its arguments, which may have secrets.
        let name = fs::read_to_string(format!("/proc/{first}/comm")).unwrap_or_default();
        let name = name.replace(|c: char| c.is_control(), " ");
        let text = format!("process {first} ({})", name.trim());
        match living.len() - 1 {
            0 => text,
            more => format!("{text} and {more} more"),
        }
    }

    /// The living descendants, parents before their children. Once SIGTERM was sent, those of a `run`
    /// within are left out, because it passes SIGTERM on to them.
    fn living(&self) -> io::Result<Vec<(Pid, Process)>> {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for (pid, process) in processes()? {
            children.entry(process.parent).or_default().push((pid, process));
        }
        let mut found = children.remove(&getpid().as_raw_pid()).unwrap_or_default();
        found.retain(|(pid, process)| !self.earlier.contains(&(*pid, process.started)));
        let mut next = 0;
        while let Some(&(pid, _)) = found.get(next) {
            next += 1;
            if !(self.ending == Some(Signal::TERM) && is_run(pid)) {
                found.extend(children.remove(&pid.as_raw_pid()).unwrap_or_default());
            }
        }
        found.retain(|(_, process)| !process.is_zombie);
        Ok(found)
    }
}

/// Opens a file that has only a name. No program that this process executes inherits it.
fn mark() -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    let mark = memfd_create(MARK, MemfdFlags::CLOEXEC).ok();
    #[cfg(not(target_os = "linux"))]
    let mark = None;
    mark
}

/// Whether a process is a `run` that passes SIGTERM on.
fn is_run(pid: Pid) -> bool {
    let mark = PathBuf::from(format!("/memfd:{MARK} (deleted)"));
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == mark)
}

fn processes() -> io::Result<Vec<(Pid, Process)>> {
    let mut processes = Vec::new();
    for folder in fs::read_dir("/proc")? {
        let pid = folder?.file_name().to_str().and_then(|name| name.parse().ok());
        let read = |pid| Some((pid, Process::read(pid)?));
        processes.extend(pid.and_then(Pid::from_raw).and_then(read));
    }
    Ok(processes)
}
