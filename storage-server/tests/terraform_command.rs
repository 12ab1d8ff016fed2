//! The commands `terraform` and `tofu` themselves, with a backend `http` as in the documentation.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use testbed::{StorageServer, installed, process::Process};

use crate::{
    access::Guarded,
    terraform::{STATE, lock},
    wire,
    world::World,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// A configuration without a provider, which would have to be downloaded.
const OUTPUT: &str = "variable \"by\" {}\noutput \"by\" {\n  value = var.by\n}\n";

/// One of the two, whose backends are the same.
fn program() -> PathBuf {
    let tofu = || installed("tofu", &[], "OpenTofu (https://opentofu.org)");
    installed("terraform", &[], "Terraform").or_else(|_| tofu()).unwrap()
}

/// The folder of a client: the configuration of its backend, and an output.
struct Folder(TempDir);

impl Folder {
    /// Makes a folder whose lock has the query in its address, and initializes it.
    async fn new(server: &StorageServer, query: &str, password: &str) -> Self {
        let address = format!("{}{STATE}", server.url());
        let backend = format!(
            "terraform {{\n  backend \"http\" {{\n    address = \"{address}\"\n    \
             lock_address = \"{address}{query}\"\n    unlock_address = \"{address}\"\n    \
             username = \"terraform\"\n    password = \"{password}\"\n  }}\n}}\n"
        );
        let folder = Self(TempDir::with_prefix("fenced-").unwrap());
        fs::write(folder.path().join("main.tf"), backend + OUTPUT).unwrap();
        let (status, log) = folder.run(&["init", "-input=false"]).await;
        assert!(status.success(), "{log}");
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn start(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(program());
        command.args(arguments).arg("-no-color").current_dir(self.path());
        // The settings of the user who runs the test don't count, and nothing is downloaded.
        command.env("HOME", self.path()).env("TF_CLI_CONFIG_FILE", "/dev/null");
        command.env("CHECKPOINT_DISABLE", "1");
        Process::spawn("terraform", &command, self.path()).unwrap()
    }

    /// Runs a command to its end, and returns what it printed.
    async fn run(&self, arguments: &[&str]) -> (ExitStatus, String) {
        self.end(self.start(arguments)).await
    }

    async fn end(&self, mut process: Process) -> (ExitStatus, String) {
        let mut log = String::new();
        while let Ok(line) = process.line(PATIENCE).await {
            log += &format!("{line}\n");
        }
        let status = process.exit(PATIENCE).await.unwrap();
        (status, log + &process.stderr().unwrap())
    }
}

/// The output in the state, and who wrote it.
async fn output(server: &StorageServer, bearer: &str) -> Value {
    let bearer = format!("Bearer {bearer}");
    let headers = [("Authorization", bearer.as_str())];
    let state = wire::request(server.url(), "GET", STATE, &headers, "").await;
    assert_eq!(state.status, 200, "{state:?}");
    state.json()["outputs"]["by"]["value"].clone()
}

/// Pauses a run between its plan and its approval, until another run has taken the lock and changed the
/// state. Returns how the first run ends, and who has written the state.
async fn pause_before_the_approval(enforcement: &str) -> (ExitStatus, String, bool, Value) {
    let guarded = Guarded::new();
    let allow = ["--prefix", "terraform/", "--allow", "read,write,claim"];
    let bearer = guarded.identity("ci", &allow).await;
    let auth_file = guarded.auth_file();
    let arguments = ["--auth-file", auth_file.to_str().unwrap(), "--enforcement", enforcement];
    let server = guarded.database.serve(&arguments).await;

    let first = Folder::new(&server, "?ttl=1s", &bearer).await;
    // A run without an earlier state would read the newest one before it uploads, and upload that.
    let (status, log) = first.run(&["apply", "-auto-approve", "-var=by=nobody"]).await;
    assert!(status.success(), "{log}");
    let mut paused = first.start(&["apply", "-var=by=one"]);
    while !paused.line(PATIENCE).await.unwrap().contains("Only 'yes' will be accepted") {}
    paused.pause().await.unwrap();

    // The second run waits until the lock has expired.
    let second = Folder::new(&server, "?ttl=1h", &bearer).await;
    let apply = ["apply", "-auto-approve", "-lock-timeout=120s", "-var=by=two"];
    let (status, log) = second.run(&apply).await;
    assert!(status.success(), "{log}");
    assert_eq!(output(&server, &bearer).await, "two");

    paused.resume().unwrap();
    paused.write_line("yes").unwrap();
    let (status, log) = first.end(paused).await;
    let errored = first.path().join("errored.tfstate").exists();
    (status, log, errored, output(&server, &bearer).await)
}

#[tokio::test]
async fn run_that_was_paused_past_its_ttl_overwrites_nothing() {
    let (status, log, errored, output) = pause_before_the_approval("enforce").await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("HTTP error: 409"), "{log}");
    assert!(errored, "{log}");
    assert_eq!(output, "two");
}

/// The control.
#[tokio::test]
async fn without_enforcement_the_paused_run_overwrites_the_state() {
    let (status, log, errored, output) = pause_before_the_approval("off").await;
    assert!(status.success() && !errored, "{log}");
    assert_eq!(output, "one", "{log}");
}

#[tokio::test]
async fn held_lock_is_reported_and_forced_open() {
    let world = World::on_sqlite(&[]).await;
    let server = &world.server;
    let folder = Folder::new(server, "", "").await;
    assert_eq!(lock(server, "", "somebody").await.status, 200);
    let apply = ["apply", "-auto-approve", "-var=by=one"];
    let (status, log) = folder.run(&apply).await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("already locked: ID=..."), "{log}");

    let (status, log) = folder.run(&["force-unlock", "-force", "somebody"]).await;
    assert!(status.success(), "{log}");
    let (status, log) = folder.run(&apply).await;
    assert!(status.success(), "{log}");
    assert_eq!(output(server, "").await, "one");
}
