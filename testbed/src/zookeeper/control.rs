//! What a member says of itself, and the program `zkCli`.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ZooKeeper, launch::java};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a member that may be paused has for an answer.
const MODE_TIMEOUT: Duration = Duration::from_secs(1);

impl ZooKeeper {
    /// Returns the mode of a member, such as `leader`; `None` if it does not serve clients.
    pub(super) async fn mode(&self, number: usize) -> Option<String> {
        let report = timeout(MODE_TIMEOUT, self.report(number, "srvr")).await.ok()?.ok()?;
        report.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Returns how many clients are connected to a member, this question included.
    ///
    /// # Errors
    /// If the member does not answer.
    pub async fn connections(&self, number: usize) -> anyhow::Result<usize> {
        Ok(self.count(number, "Connections: ").await?.try_into()?)
    }

    /// Returns how many messages a member has received from clients, this question included.
    ///
    /// # Errors
    /// If the member does not answer.
    pub async fn received(&self, number: usize) -> anyhow::Result<u64> {
        self.count(number, "Received: ").await
    }

    /// Returns how many nodes a member has.
    ///
    /// # Errors
    /// If the member does not answer.
    pub async fn nodes(&self, number: usize) -> anyhow::Result<u64> {
        self.count(number, "Node count: ").await
    }

    /// Returns the number of the last change that a member has. A change that fails has a number, too.
    ///
    /// # Errors
    /// If the member does not answer.
    pub async fn last_change(&self, number: usize) -> anyhow::Result<u64> {
        Ok(u64::from_str_radix(&self.line(number, "Zxid: 0x").await?, 16)?)
    }

    async fn count(&self, number: usize, line: &str) -> anyhow::Result<u64> {
        Ok(self.line(number, line).await?.parse()?)
    }

    async fn line(&self, number: usize, beginning: &str) -> anyhow::Result<String> {
        let report = self.report(number, "srvr").await?;
        let rest = report.lines().find_map(|line| line.strip_prefix(beginning));
        Ok(rest.context("the member does not serve clients")?.to_owned())
    }

    /// Returns the ids of the sessions that a member knows, in order. Only the leader knows all. One that
    /// ends meanwhile may be among them.
    ///
    /// # Errors
    /// If the member does not answer.
    pub async fn sessions(&self, number: usize) -> anyhow::Result<Vec<String>> {
        let mut ids = BTreeSet::new();
        // A report may leave out a session that is given its full time at that moment. Two rarely do.
        for _ in 0..2 {
            let report = self.report(number, "dump").await?;
            let sessions = report.split("ephemeral nodes dump").next().unwrap_or_default();
            let words = sessions.split_whitespace().filter(|word| word.starts_with("0x"));
            ids.extend(words.map(str::to_owned));
        }
        Ok(ids.into_iter().collect())
    }

    /// Returns the sessions that have ephemeral nodes, and the paths of these nodes, in lines.
    ///
    /// # Errors
    /// If the first member does not answer.
    pub async fn ephemeral_nodes(&self) -> anyhow::Result<String> {
        let report = self.report(0, "dump").await?;
        let nodes = report.split("Sessions with Ephemerals").nth(1).unwrap_or_default();
        Ok(nodes.split("Connections dump").next().unwrap_or_default().to_owned())
    }

    /// Asks a member for one of its reports.
    async fn report(&self, number: usize, what: &str) -> anyhow::Result<String> {
        let asking = async {
            let mut stream = TcpStream::connect(self.plain_address(number)).await?;
            stream.write_all(what.as_bytes()).await?;
            let mut report = String::new();
            stream.read_to_string(&mut report).await?;
            Ok(report)
        };
        timeout(ANSWER_TIMEOUT, asking).await?
    }

    /// Runs a command of ZooKeeper's command line at the first member, and returns what it prints.
    ///
    /// # Errors
    /// If it fails.
    pub async fn cli(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = java(None)?;
        command.args(["org.apache.zookeeper.ZooKeeperMain", "-server"]);
        command.arg(self.plain_address(0).to_string()).args(arguments);
        let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
        let [stdout, stderr] = [output.stdout, output.stderr].map(String::from_utf8);
        let (stdout, stderr) = (stdout?, stderr?);
        ensure!(output.status.success(), "zkCli failed: {stdout}{stderr}");
        Ok(stdout)
    }
}
