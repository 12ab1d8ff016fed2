//! What the operating system knows about a process.

use rustix::process::Pid;

/// Whether a process lives. One that has ended, and that nobody has waited for, does not.
pub fn lives(pid: u32) -> bool {
    Pid::from_raw(pid.cast_signed()).and_then(state).is_some_and(|state| state != 'Z')
}

/// Whether a process has been stopped by a signal.
pub(super) fn is_stopped(pid: Pid) -> bool {
    state(pid) == Some('T')
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
    let mut ps = std::process::Command::new("ps");
    let output = ps.args(["-o", "state=", "-p", &pid.to_string()]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.chars().next()
}
