//! What the operating system knows about a process.

use std::process::Command;

use rustix::process::Pid;

/// Whether a process lives. One that has ended, and that nobody has waited for, does not.
pub fn lives(pid: u32) -> bool {
    Pid::from_raw(pid.cast_signed()).and_then(state).is_some_and(|state| state != 'Z')
}

/// Whether a process has been stopped by a signal.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    state(pid) == Some('T')
}

/// Returns the ids of a process's children.
///
/// # Errors
/// If `ps` fails.
pub(crate) fn children(parent: Pid) -> anyhow::Result<Vec<Pid>> {
    let output = Command::new("ps").args(["-A", "-o", "ppid=,pid="]).output()?;
    let numbers = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<i32>().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let all = String::from_utf8(output.stdout)?;
    let pairs = all.lines().filter_map(numbers);
    let own = pairs.filter(|&(ppid, _)| ppid == parent.as_raw_nonzero().get());
    Ok(own.filter_map(|(_, pid)| Pid::from_raw(pid)).collect())
}

/// Returns the letter of a process's state, or `None` if there is no such process.
#[cfg(target_os = "linux")]
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the command's name, which is in parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(not(target_os = "linux"))]
fn state(pid: Pid) -> Option<char> {
    let mut ps = Command::new("ps");
    let output = ps.args(["-o", "state=", "-p", &pid.to_string()]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.chars().next()
}
