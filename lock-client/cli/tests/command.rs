//! Runs the command `lock-client`, to its end or step by step.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output},
    time::{Duration, SystemTime},
};

use crate::programs::LOCK_CLIENT;
use lock_client::Locks;
use rustix::process::{Signal, geteuid};
use serde_json::Value;
use tempfile::TempDir;
use testbed::{Redis, process::Process, wait::until};

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The message if another client holds the lock.
pub(crate) const BUSY: &str = "is held by another client";
/// The message if Redis doesn't answer.
pub(crate) const NO_ANSWER: &str = "the lock service is unavailable";
/// The message if the lease of the lock `r` is lost.
pub(crate) const LOST: &str = "the lease of lock `r` is lost";

/// The command, without settings from the environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    without_settings(Command::new(LOCK_CLIENT), arguments)
}

/// A program without a terminal, so that no signal seems to come from the terminal of the tests. It
/// ignores no signal, even if the tests were started to ignore some.
pub(crate) fn without_terminal(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("env");
    if cfg!(target_os = "linux") {
        command.args(["--default-signal", "setsid"]);
    }
    command.arg(program);
    command
}

fn without_settings(mut command: Command, arguments: &[&str]) -> Command {
    for variable in [
        "TOKEN",
        "GRANT",
        "HOLDER",
        "RESOURCE",
        "RESOURCE_PATH",
        "DEADLINE_MS",
        "LOCK_SERVICE",
        "OUTER",
    ] {
        command.env_remove(format!("FENCING_{variable}"));
    }
    command.env_remove("FENCED_LOCKS").env_remove("FENCED_STORAGE");
    for setting in ["CA_FILE", "CERT_FILE", "KEY_FILE", "TOKEN_FILE", "TOKEN"] {
        command.env_remove(format!("FENCED_STORAGE_{setting}"));
    }
    command.env_remove("RUST_LOG");
    command.args(arguments);
    command
}

/// Runs the command to its end, with an empty stdin.
pub(crate) async fn lock_client(arguments: &[&str]) -> Output {
    output(command(arguments)).await
}

/// Runs a command to its end.
pub(crate) async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// The exit code as a shell shows it: 128 + n if signal n has ended the process.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("it has ended"))
}

pub(crate) fn events(output: &Output) -> Vec<Value> {
    json_lines(std::str::from_utf8(&output.stdout).unwrap())
}

fn json_lines(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

pub(crate) fn assert_failed(output: &Output, code: i32, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(reason), "{reason:?} is in {stderr:?}");
}

pub(crate) fn locks(redis: &Redis) -> Locks {
    Locks::new(lock_client::redis::Redis::open(&redis.url()).unwrap())
}

pub(crate) fn unix_millis() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The state of a process: T if it has stopped, D if it can't take a signal now.
pub(crate) fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

/// Lets every user reach a Redis and a folder, and returns the words that run a program there as root.
pub(crate) fn as_root(redis: &Redis, folder: &Path) -> String {
    assert!(geteuid().is_root(), "only root can start a process of another user");
    for file in [folder, redis.socket().parent().unwrap()] {
        fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(redis.socket(), Permissions::from_mode(0o777)).unwrap();
    let root = folder.join("as-root");
    fs::copy("/usr/bin/setpriv", &root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o4755)).unwrap();
    format!("{} --reuid=0 --regid=0 --clear-groups", root.display())
}

/// The command as a user without rights.
pub(crate) fn as_nobody() -> Command {
    let mut command = without_terminal("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", LOCK_CLIENT]);
    command
}

/// A running `lock-client run`, whose events go to a file.
pub(crate) struct Run {
    process: Process,
    status: PathBuf,
    folder: TempDir,
}

impl Run {
    /// Runs a script of the shell under the lock `r`.
    pub(crate) fn start(redis: &Redis, options: &[&str], script: &str) -> Self {
        Self::start_with(redis, options, script, &[])
    }

    /// The same, with variables.
    pub(crate) fn start_with(
        redis: &Redis,
        options: &[&str],
        script: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        Self::start_at(&redis.url(), options, script, variables)
    }

    /// The same, on the lock service at a URL.
    pub(crate) fn start_at(
        url: &str,
        options: &[&str],
        script: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status");
        let mut shell = without_terminal("sh");
        shell.args(["-c", r#"exec "$@" 3>> "$0""#]).arg(&status);
        shell.arg(LOCK_CLIENT);
        let run = [&["run", "r", "--locks", url, "--status-fd", "3"], options].concat();
        let mut command = without_settings(shell, &run);
        command.args(["--", "sh", "-c", script]).envs(variables.iter().copied());
        let process = Process::spawn("run", &command, folder.path()).unwrap();
        Self { process, status, folder }
    }

    /// The next line that the script prints.
    pub(crate) async fn line(&mut self) -> String {
        self.process.line(PATIENCE).await.unwrap()
    }

    /// The next line, which is a process id.
    pub(crate) async fn pid(&mut self) -> u32 {
        self.line().await.parse().unwrap()
    }

    /// Writes a line to the script's stdin, for which it waits.
    pub(crate) fn continue_script(&mut self) {
        self.process.write_line("").unwrap();
    }

    /// The wrapper itself.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal).unwrap();
    }

    /// Waits for the exit code of the wrapper, as a shell shows it.
    pub(crate) async fn exit_code(&mut self) -> i32 {
        code(self.process.exit(PATIENCE).await.unwrap())
    }

    /// The events on the status descriptor so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        json_lines(&fs::read_to_string(&self.status).unwrap_or_default())
    }

    /// The names of the events so far, but for a wait: only one that lasts is reported.
    pub(crate) fn event_names(&self) -> Vec<String> {
        let events = self.events();
        let names = names(&events).into_iter().filter(|name| *name != "waiting");
        names.map(ToOwned::to_owned).collect()
    }

    /// Waits for an event, and returns it.
    pub(crate) async fn event(&self, name: &str) -> Value {
        let found = || self.events().into_iter().find(|event| event["event"] == name);
        let waited = until(PATIENCE, || Ok(found().is_some())).await;
        waited.unwrap_or_else(|_| panic!("{name} is in {:?}; {}", self.events(), self.stderr()));
        found().unwrap()
    }

    /// What the wrapper and the script printed on stderr so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("run.stderr")).unwrap()
    }
}
