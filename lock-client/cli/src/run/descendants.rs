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

/// How many characters of a command line are shown.
const SHOWN: usize = 60;

/// The processes that the command has started, and those that they have started.
#[derive(Debug)]
pub(super) struct Descendants {
    /// The children that this process had before: the witness, and others if a shell has started
    /// them and then executed this program in its own place.
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
    /// In ticks since the start of the machine.
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
        let earlier = processes().into_iter().filter(Stat::is_child).map(|stat| stat.process);
        Ok(Self { earlier: earlier.collect(), ending: None, signalled: HashSet::new() })
    }

    /// Returns whether any is left, after it has waited for those that have ended.
    pub(super) fn any_left(&self, reaper: &mut Reaper) -> io::Result<bool> {
        reaper.reap()?;
        loop {
            if !self.living().is_empty() {
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
        if self.ending != Some(signal) {
            self.ending = Some(signal);
            self.signalled.clear();
        }
        let others = |stat: &Stat| stat.process.pid != command;
        // A process that forks while SIGKILL is under way leaves a child that the next look finds.
        // After SIGTERM, a process may start others to clean up: they need their time.
        while self.signal_new(signal, others) && signal == Signal::KILL {}
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

    /// Returns whether there was a new one.
    fn signal_new(&mut self, signal: Signal, is_meant: impl Fn(&Stat) -> bool) -> bool {
        let mut any = false;
        for stat in self.living().into_iter().filter(is_meant) {
            if self.signalled.insert(stat.process) {
                any = true;
                // It may run as another user, and nothing helps against that.
                let _ = kill_process(stat.process.pid, signal);
            }
        }
        any
    }

    /// Describes those that are left: the first one, and how many more there are.
    pub(super) fn describe(&self) -> String {
        let living = self.living();
        let Some(first) = living.first() else {
            return "a process".to_owned();
        };
        let text = format!("process {} ({})", first.process.pid, command_line(first.process.pid));
        match living.len() - 1 {
            0 => text,
            more => format!("{text} and {more} more"),
        }
    }

    /// The living descendants, parents before their children. Once SIGTERM was sent, those of a `run`
    /// within are left out, because it passes SIGTERM on to them.
    fn living(&self) -> Vec<Stat> {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for stat in processes() {
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
        found
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

fn processes() -> Vec<Stat> {
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).filter_map(Stat::read).collect()
}

fn command_line(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).replace(|c: char| c.is_control(), " ");
    let line = line.trim();
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    shown
}
