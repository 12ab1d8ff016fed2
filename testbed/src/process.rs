//! A process that is ours: started, read, paused, resumed and killed.

use std::{
    fs::File,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::unix::pipe,
    time::timeout,
};

use crate::wait::until;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process that is ours. It is killed when this is dropped, and, on Linux, when the thread that
/// started it ends, however it ends.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<pipe::Receiver>>,
    stderr: PathBuf,
}

impl Process {
    /// Starts a command. What it writes to stderr goes to a file in the folder.
    ///
    /// # Errors
    /// If the command can't be started.
    pub fn spawn(name: &str, command: &Command, folder: &Path) -> anyhow::Result<Self> {
        Self::start(name, bound_to_this_thread(command), folder)
    }

    /// Starts a command as another user, which takes being root.
    ///
    /// # Errors
    /// If the command can't be started.
    pub fn spawn_as(
        user: &User,
        name: &str,
        command: &Command,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = bound_to_this_thread(command);
        command.uid(user.uid).gid(user.gid);
        Self::start(name, command, folder)
    }

    fn start(name: &str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let stderr = folder.join(format!("{name}.stderr"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let stdout = child.stdout.take().expect("it was asked for");
        let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
        Ok(Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            stdout: BufReader::new(stdout).lines(),
            stderr,
            child,
        })
    }

    /// The next line of its stdout.
    ///
    /// # Errors
    /// If there is none within the time. What it wrote to stderr is then part of the error.
    pub async fn line(&mut self, within: Duration) -> anyhow::Result<String> {
        match timeout(within, self.stdout.next_line()).await {
            Ok(line) => line?.with_context(|| self.account("has ended its output")),
            Err(_) => bail!(self.account(&format!("has printed nothing for {within:?}"))),
        }
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// If it has gone.
    pub fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().expect("stdin is open as long as the process is ours");
        writeln!(stdin, "{line}").with_context(|| self.account("reads nothing any more"))
    }

    /// Stops it where it is (SIGSTOP), and waits until it stands.
    ///
    /// # Errors
    /// If it has gone.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let pid = self.pid();
        until(Duration::from_secs(5), || Ok(state_of(pid) == Some('T')))
            .await
            .with_context(|| self.account("did not stop"))
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// If it has gone.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has gone.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid(), signal).with_context(|| self.account("has gone"))
    }

    /// Kills it (SIGKILL), and waits until it has gone.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// If it doesn't end within the time.
    pub async fn exit(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let mut status = None;
        let exited = until(within, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })
        .await;
        exited.with_context(|| self.account("did not end"))?;
        Ok(status.expect("it has ended"))
    }

    /// Tells whether it has ended.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits, without leaving the thread, until it ends by itself or the time is over. For drops.
    pub fn reap(&mut self, within: Duration) {
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < within {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Its id, while it is there.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it wrote to stderr so far.
    ///
    /// # Errors
    /// If that can't be read.
    pub fn stderr(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(&self.stderr)?)
    }

    /// Says what is wrong with it, with the end of what it wrote to stderr.
    pub fn account(&self, what: &str) -> String {
        let stderr = std::fs::read_to_string(&self.stderr).unwrap_or_default();
        let mut last: Vec<_> = stderr.lines().rev().take(10).collect();
        last.reverse();
        format!("{} {what}; its last words: {:?}", self.name, last.join("\n"))
    }
}

/// Whom to run a process as.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The user's id.
    pub uid: u32,
    /// The id of the user's group.
    pub gid: u32,
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has gone already.
        let _ = self.kill();
    }
}

/// Tells whether a process lives. One that has ended, and that nobody has waited for, does not.
pub fn lives(pid: u32) -> bool {
    Pid::from_raw(pid.cast_signed()).and_then(state_of).is_some_and(|state| state != 'Z')
}

/// Raises the number of files that this process may have open, which is small on some systems, as far
/// as it goes: if that is not far enough, connecting says so.
pub fn allow_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Has the kernel kill the process when the thread that starts it ends (PR_SET_PDEATHSIG).
#[cfg(target_os = "linux")]
fn bound_to_this_thread(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    completed(bound, command)
}

/// Only Linux can kill a process when its parent has gone; elsewhere, dropping has to do.
#[cfg(not(target_os = "linux"))]
fn bound_to_this_thread(command: &Command) -> Command {
    completed(Command::new(command.get_program()), command)
}

/// Gives a command another's arguments, environment and folder.
fn completed(mut command: Command, model: &Command) -> Command {
    command.args(model.get_args());
    for (key, value) in model.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    if let Some(folder) = model.get_current_dir() {
        command.current_dir(folder);
    }
    command
}

/// The letter of a process's state; `None` if there is none.
#[cfg(target_os = "linux")]
fn state_of(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the command's name, which is in parentheses.
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(not(target_os = "linux"))]
fn state_of(pid: Pid) -> Option<char> {
    let state = Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output().ok()?;
    String::from_utf8(state.stdout).ok()?.chars().next()
}
