//! The process group and the session of a process.

use rustix::process::Pid;

/// The process group of a process, its session, and the group in the foreground of its terminal.
///
/// They are numbers, and no `Pid`: a group or a session that began outside of this PID namespace, as
/// in a container, is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessGroup {
    pub(crate) group: i32,
    session: i32,
    foreground: i32,
}

impl ProcessGroup {
    /// Reads those of a process. `None` if it has ended, or the system does not show them.
    #[cfg(target_os = "linux")]
    pub(crate) fn read(process: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name of the program is in parentheses, and may have any characters. After it are the
        // fields 3 and later of `proc_pid_stat(5)`.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let [group, session, foreground] = [2, 3, 5].map(|place| fields.get(place)?.parse().ok());
        Some(Self { group: group?, session: session?, foreground: foreground? })
    }

    /// Reads those of a process. `None` if it has ended, or the system does not show them.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read(process: Pid) -> Option<Self> {
        use rustix::{
            process::{getpgid, getsid},
            termios::tcgetpgrp,
        };
        let terminal = std::fs::File::open("/dev/tty").ok();
        let foreground = terminal.and_then(|terminal| tcgetpgrp(terminal).ok());
        Some(Self {
            group: getpgid(Some(process)).ok()?.as_raw_pid(),
            session: getsid(Some(process)).ok()?.as_raw_pid(),
            foreground: foreground.map_or(-1, Pid::as_raw_pid),
        })
    }

    /// Whether it is the group that its terminal sends SIGINT and SIGQUIT to.
    pub(crate) fn is_in_foreground(self) -> bool {
        self.group == self.foreground
    }

    /// Whether a process leads the session.
    pub(crate) fn is_session_of(self, process: Pid) -> bool {
        self.session == process.as_raw_pid()
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpgrp, getpid, getsid};

    use super::*;

    #[test]
    fn group_and_session_are_those_that_the_system_names() {
        let found = ProcessGroup::read(getpid()).unwrap();
        assert_eq!(found.group, getpgrp().as_raw_pid());
        assert!(found.is_session_of(getsid(None).unwrap()));
    }
}
