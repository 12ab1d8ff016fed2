//! Processes that a test starts, reads, pauses, resumes and kills.

mod bound;
mod state;

use std::{
    fs::{self, File},
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::unix::pipe,
    time::timeout,
};

use self::bound::bound_to_this_thread;
pub use self::state::lives;
pub(crate) use self::state::{children, is_stopped};
use crate::{user::User, wait::until};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A child process. It is killed when this is dropped, and on Linux also when the thread that
/// started it ends, in whatever way.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<pipe::Receiver>>,
    stderr: PathBuf,
}

impl Process {
    /// Starts a command under a name. Its stderr goes to the file `<name>.stderr` in the folder.
    ///
    /// # Errors
    /// If the command can't be started.
    pub fn spawn(name: &str, command: &Command, folder: &Path) -> anyhow::Result<Self> {
        Self::spawn_as(None, name, command, folder)
    }

    /// Starts a command as another user, if one is given. Only root can do that.
    pub(crate) fn spawn_as(
        user: Option<User>,
        name: &str,
        command: &Command,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = bound_to_this_thread(command);
        if let Some(User { uid, gid }) = user {
            command.uid(uid).gid(gid);
        }
        let stderr = folder.join(format!("{name}.stderr"));
        // A child of an earlier process of this name may still write there.
        let log = File::options().create(true).append(true).open(&stderr)?;
        log.set_len(0)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("can't start {name}"))?;
        let stdout = child.stdout.take().expect("it is piped");
        let stdout = pipe::Receiver::from_owned_fd(stdout.into())?;
        Ok(Self {
            name: name.to_owned(),
            stdin: child.stdin.take(),
            stdout: BufReader::new(stdout).lines(),
            stderr,
            child,
        })
    }

    /// Returns the next line of its stdout.
    ///
    /// # Errors
    /// If there is none within the time. The error has the end of its stderr.
    pub async fn line(&mut self, within: Duration) -> anyhow::Result<String> {
        match timeout(within, self.stdout.next_line()).await {
            Ok(line) => line?.with_context(|| self.account("has closed its stdout")),
            Err(_) => bail!(self.account(&format!("has printed nothing for {within:?}"))),
        }
    }

    /// Writes a line to its stdin.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn write_line(&mut self, line: &str) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().expect("nothing closes stdin before the drop");
        writeln!(stdin, "{line}").with_context(|| self.account("has closed its stdin"))
    }

    /// Pauses the process (SIGSTOP), and waits until it has stopped.
    ///
    /// # Errors
    /// If the process has ended.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        until(Duration::from_secs(5), || Ok(self.is_paused()))
            .await
            .with_context(|| self.account("did not stop"))
    }

    /// Resumes the process (SIGCONT).
    ///
    /// # Errors
    /// If the process has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Whether the process is paused.
    pub(crate) fn is_paused(&self) -> bool {
        is_stopped(self.pid())
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid(), signal).with_context(|| self.account("has ended"))
    }

    /// Kills the process (SIGKILL), and waits until it has ended.
    ///
    /// # Errors
    /// If the operating system does not allow it.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until the process ends by itself, and returns its exit status.
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
        Ok(status.expect("the wait ends with a status"))
    }

    /// Whether the process has ended.
    ///
    /// # Errors
    /// If the operating system does not allow it.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Blocks the thread until the process ends by itself, or the time is over. For drops.
    pub(crate) fn reap(&mut self, within: Duration) {
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < within {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns its stderr so far.
    ///
    /// # Errors
    /// If the file of its stderr can't be read.
    pub fn stderr(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(&self.stderr)?)
    }

    /// Returns an error message: what the process did, and the end of its stderr.
    pub fn account(&self, what: &str) -> String {
        let stderr = fs::read_to_string(&self.stderr).unwrap_or_default();
        let mut last: Vec<_> = stderr.lines().rev().take(10).collect();
        last.reverse();
        format!("{} {what}; the end of its stderr: {:?}", self.name, last.join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.kill();
    }
}
