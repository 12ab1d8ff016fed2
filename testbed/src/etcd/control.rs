//! What a member says of itself, and the program `etcdctl`.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::ensure;
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, sleep},
};

use super::{Etcd, POLL_INTERVAL, START_TIMEOUT, launch::Door};
use crate::{http, package::installed, tls};

impl Etcd {
    /// Asks a member whether it answers by a quorum.
    ///
    /// # Errors
    /// If it doesn't.
    pub(super) async fn health(&self, number: usize) -> anyhow::Result<()> {
        if self.door != Door::Tcp {
            let health = ["endpoint", "health", "--command-timeout=1s"];
            return self.etcdctl_at(&self.endpoint(number), &health).await.map(drop);
        }
        let answer = http::ask(self.address(number), "GET /health").await?;
        ensure!(answer.contains(r#""health":"true""#), "etcd is not healthy: {answer}");
        Ok(())
    }

    /// Returns what a member answers about its version, with the headers. Of these, `Date` is the time by
    /// its clock.
    ///
    /// # Errors
    /// If the member does not answer, or takes TLS only.
    pub async fn version(&self, number: usize) -> anyhow::Result<String> {
        let begun = Instant::now();
        loop {
            match http::ask(self.address(number), "GET /version").await {
                Err(_) if begun.elapsed() < START_TIMEOUT => sleep(POLL_INTERVAL).await,
                answer => return answer,
            }
        }
    }

    /// Runs `etcdctl` on these members.
    pub(super) async fn etcdctl_at(
        &self,
        endpoints: &str,
        arguments: &[&str],
    ) -> anyhow::Result<String> {
        output(self.command(endpoints, arguments)?, "").await
    }

    /// Puts up to 128 keys without a value in one transaction.
    ///
    /// # Errors
    /// If `etcdctl` fails.
    pub async fn put_keys(&self, keys: impl Iterator<Item = String>) -> anyhow::Result<()> {
        let puts: String = keys.map(|key| format!("put {key} \"\"\n")).collect();
        // No conditions, then the operations, and none for the other case.
        let transaction = format!("\n{puts}\n\n");
        output(self.command(&self.endpoint(0), &["txn"])?, &transaction).await?;
        Ok(())
    }

    fn command(&self, endpoints: &str, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new(program("etcdctl")?);
        command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints]).args(arguments);
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        if self.door != Door::Tcp {
            for (option, file) in [
                ("--cacert", tls::CA_CERTIFICATE),
                ("--cert", tls::CERTIFICATE),
                ("--key", tls::KEY),
            ] {
                command.arg(option).arg(self.folder.path().join(file));
            }
        }
        Ok(command)
    }
}

/// Returns the path of one of etcd's programs.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let package = match name {
        "etcdctl" => "the package etcd-client (brew: etcd)",
        _ => "the package etcd-server (brew: etcd)",
    };
    installed(name, &[], package)
}

/// Runs a command with this input, and returns what it prints.
pub(super) async fn output(command: Command, input: &str) -> anyhow::Result<String> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.kill_on_drop(true).spawn()?;
    // When this is dropped, the input ends.
    running.stdin.take().expect("it is piped").write_all(input.as_bytes()).await?;
    let output = running.wait_with_output().await?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
    let (stdout, stderr) = (stdout?, stderr?);
    ensure!(output.status.success(), "etcdctl failed: {stdout}{stderr}");
    Ok(stdout)
}
