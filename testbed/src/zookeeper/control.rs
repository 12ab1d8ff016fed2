//! What a member says of itself, and the program `zkCli`.

use std::time::Duration;

use anyhow::ensure;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ZooKeeper, launch::java};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

impl ZooKeeper {
    /// Returns the mode of a member, such as `leader`; `None` if it does not serve clients.
    pub(super) async fn mode(&self, number: usize) -> Option<String> {
        let asking = async {
            let mut stream = TcpStream::connect(self.address(number)).await.ok()?;
            stream.write_all(b"srvr").await.ok()?;
            let mut report = String::new();
            stream.read_to_string(&mut report).await.ok()?;
            report.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
        };
        timeout(ANSWER_TIMEOUT, asking).await.ok().flatten()
    }

    /// Runs a command of ZooKeeper's command line at the first member, and returns what it prints.
    ///
    /// # Errors
    /// If it fails.
    pub async fn cli(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = java()?;
        command.args(["org.apache.zookeeper.ZooKeeperMain", "-server"]);
        command.arg(self.address(0).to_string()).args(arguments);
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
        let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
        let (stdout, stderr) = (stdout?, stderr?);
        ensure!(output.status.success(), "zkCli failed: {stdout}{stderr}");
        Ok(stdout)
    }
}
