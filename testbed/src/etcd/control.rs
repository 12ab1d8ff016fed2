//! The program `etcdctl`.

use std::{path::PathBuf, process::Command};

use anyhow::ensure;

use super::{Etcd, launch::Door};
use crate::{package::installed, tls};

impl Etcd {
    /// Runs `etcdctl` on these members.
    pub(super) async fn etcdctl_at(
        &self,
        endpoints: &str,
        arguments: &[&str],
    ) -> anyhow::Result<String> {
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
        output(command).await
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

/// Runs a command, and returns what it prints.
pub(super) async fn output(command: Command) -> anyhow::Result<String> {
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
    let (stdout, stderr) = (stdout?, stderr?);
    ensure!(output.status.success(), "etcdctl failed: {stdout}{stderr}");
    Ok(stdout)
}
