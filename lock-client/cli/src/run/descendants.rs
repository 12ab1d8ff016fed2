//! The processes that the command has started, and those that they have started.
//!
//! This process is their subreaper (`PR_SET_CHILD_SUBREAPER`, see `prctl(2)`): if the parent of one
//! ends, it becomes a child of this process. A daemon does too. So they all have ended when this
//! process has no child left but those that it had before. A `/proc` that is mounted with `hidepid`
//! hides processes of other users.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
};

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::reaper::Reaper;
use crate::failure::Failure;

/// The processes that the command has started, and those that they have started.
#[derive(Debug)]
pub(super) struct Descendants {
    /// The processes that there were before: children of a shell that has executed this program in its
    /// own place, with theirs.
    earlier: HashSet<Process>,
    /// The signal that ends the descendants, once one was sent.
    ending: Option<Signal>,
    /// The processes that were sent that signal.
    signalled: HashSet<Process>,
}

/// A process. Its start distinguishes it from a later process of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: Pid,
    /// In clock ticks since the start of the machine.
    started: u64,
}

/// What `/proc` says about a process.
#[derive(Debug)]
struct Stat {
    process: Process,
    parent: Option<Pid>,
    is_zombie: bool,
}

impl Descendants {
    /// Makes this process the subreaper of all processes that it will start.
    pub(super) fn adopt() -> Result<Self, Failure> {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid())).map_err(|error| {
            let error = format!("can't adopt processes ({error}); run --close does not need that");
            Failure::Unavailable(error)
        })?;
        let of_ours = fs::read_link("/proc/self").is_ok_and(|this| {
            this.to_str().and_then(|pid| pid.parse().ok()) == Some(getpid().as_raw_pid())
        });
        let earlier = processes().ok().filter(|_| of_ours).ok_or_else(|| {
            Failure::Unavailable(
                "/proc can't be read, or shows another PID namespace; run --close does not need it"
                    .to_owned(),
            )
        })?;
        let earlier = earlier.into_iter().map(|stat| stat.process);
        Ok(Self { earlier: earlier.collect(), ending: None, signalled: HashSet::new() })
    }

    /// Returns whether any is left, after it has waited for those that have ended.
    pub(super) fn any_left(&self, reaper: &mut Reaper) -> io::Result<bool> {
        reaper.reap()?;
        loop {
            // If that can't be seen, some may be left.
            if self.living().map_or(true, |living| !living.is_empty()) {
                return Ok(true);
            }
            // A parent that ends during the look hides its children. Then it is a zombie now.
            if !reaper.reap()? {
                return Ok(false);
            }
        }
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
        let others = |stat: &Stat| stat.process.pid != command;
        // A process that forks while SIGKILL is under way leaves a child that the next look finds.
        // After SIGTERM, a process may start others to clean up: they need their time.
        while self.signal_new(signal, others) && signal == Signal::KILL {}
    }

    /// Whether a signal was sent to end them.
    pub(super) fn are_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Sends the last signal to descendants that did not exist, or were not seen, when it was sent:
    /// SIGKILL to all, and SIGTERM to orphans.
    pub(super) fn end_new(&mut self) {
        match self.ending {
            Some(Signal::KILL) => while self.signal_new(Signal::KILL, |_| true) {},
            Some(signal) => drop(self.signal_new(signal, Stat::is_child)),
            None => {}
        }
    }

    /// Returns whether a new one was signalled.
    fn signal_new(&mut self, signal: Signal, is_meant: impl Fn(&Stat) -> bool) -> bool {
        let mut any = false;
        for stat in self.living().unwrap_or_default().into_iter().filter(is_meant) {
            if self.signalled.insert(stat.process) {
                // It may run as another user, and nothing helps against that.
                any |= kill_process(stat.process.pid, signal).is_ok();
            }
        }
        any
    }

    /// Describes those that are left: the first one, and how many more there are.
    pub(super) fn describe(&self) -> String {
        let living = self.living().unwrap_or_default();
        let Some(first) = living.first() else {
            return "a process".to_owned();
        };
        let text = format!("process {} ({})", first.process.pid, program_name(first.process.pid));
        match living.len() - 1 {
            0 => text,
            more => format!("{text} and {more} more"),
        }
    }

    /// The living descendants, parents before their children. Once SIGTERM was sent, those of a `run`
    /// within are left out, because it passes SIGTERM on to them.
    fn living(&self) -> io::Result<Vec<Stat>> {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for stat in processes()? {
            children.entry(stat.parent).or_default().push(stat);
        }
        let this_program = fs::read_link("/proc/self/exe").ok();
        let mut found = children.remove(&Some(getpid())).unwrap_or_default();
        found.retain(|stat| !self.earlier.contains(&stat.process));
        let mut next = 0;
        while let Some(Stat { process: Process { pid, .. }, .. }) = found.get(next) {
            next += 1;
            let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
            let is_run = program.is_some() && program == this_program;
            if !(is_run && self.ending == Some(Signal::TERM)) {
                let pid = *pid;
                found.extend(children.remove(&Some(pid)).unwrap_or_default());
            }
        }
        found.retain(|stat| !stat.is_zombie);
        Ok(found)
    }
}

impl Stat {
    fn is_child(&self) -> bool {
        self.parent == Some(getpid())
    }

    fn read(pid: Pid) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program is in parentheses, and may have any characters.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        // The fields 3, 4, 20 and 22 of `proc_pid_stat(5)`.
        let [state, parent, threads, started] =
            [0, 1, 17, 19].map(|field| fields.get(field).copied());
        Some(Self {
            process: Process { pid, started: started?.parse().ok()? },
            parent: Pid::from_raw(parent?.parse().ok()?),
            // The other threads of a process may live on when its first thread has ended.
            is_zombie: state? == "Z" && threads? == "1",
        })
    }
}

fn processes() -> io::Result<Vec<Stat>> {
    let mut processes = Vec::new();
    for folder in fs::read_dir("/proc")? {
        let pid = folder?.file_name().to_str().and_then(|name| name.parse().ok());
        processes.extend(pid.and_then(Pid::from_raw).and_then(Stat::read));
    }
    Ok(processes)
}

/// The name of a process's program, without its arguments, which may have secrets.
fn program_name(pid: Pid) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.replace(|c: char| c.is_control(), " ").trim().to_owned()
}
