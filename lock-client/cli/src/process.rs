//! A process, as the system shows it.

use rustix::process::{Pid, getpid};

/// What the system shows of a process.
///
/// Groups and sessions are numbers, and no `Pid`: one that began outside of this PID namespace, as in
/// a container, is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The group in the foreground of its terminal.
    foreground: i32,
    /// When it started, in clock ticks. It distinguishes the process from a later one of its id.
    pub(crate) started: i64,
    pub(crate) is_zombie: bool,
    pub(crate) is_stopped: bool,
    /// Whether it can't take a signal now. It waits for a disk, or for its child to execute a program.
    pub(crate) is_uninterruptible: bool,
}

impl Process {
    /// Reads a process. `None` if it has ended, or the system does not show it.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(pid: Pid) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program is in parentheses, and may have any bytes.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        // They are numbered as in `proc_pid_stat(5)`. The name is field 2.
        let number = |field: usize| fields.get(field - 3)?.parse::<i64>().ok();
        let id = |field| i32::try_from(number(field)?).ok();
        Some(Self {
            parent: id(4)?,
            group: id(5)?,
            session: id(6)?,
            foreground: id(8)?,
            started: number(22)?,
            // The other threads of a process may live on when its first thread has ended.
            is_zombie: fields[0] == "Z" && number(20)? == 1,
            is_stopped: fields[0] == "T",
            is_uninterruptible: fields[0] == "D",
        })
    }

    /// Reads a process. `None` if it has ended. The parent, the start and the state are not read.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read(pid: Pid) -> Option<Self> {
        use rustix::{
            process::{getpgid, getsid},
            termios::tcgetpgrp,
        };
        let terminal = std::fs::File::open("/dev/tty").ok();
        let foreground = terminal.and_then(|terminal| tcgetpgrp(terminal).ok());
        Some(Self {
            group: getpgid(Some(pid)).ok()?.as_raw_pid(),
            session: getsid(Some(pid)).ok()?.as_raw_pid(),
            foreground: foreground.map_or(-1, Pid::as_raw_pid),
            ..Self::default()
        })
    }

    pub(crate) fn this() -> Option<Self> {
        Self::read(getpid())
    }
}

/// Whether this process is in the group that its terminal sends signals to.
pub(crate) fn is_in_foreground() -> bool {
    Process::this().is_some_and(|this| this.group == this.foreground)
}
