//! A private storage server.

use std::{net::SocketAddr, process::Command, time::Duration};

use anyhow::bail;
use tempfile::TempDir;

use crate::{disk::Disk, process::Process, program::Program};

/// A free port.
const LOOPBACK: &str = "127.0.0.1:0";
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A private storage server on a free port of 127.0.0.1.
#[derive(Debug)]
pub struct StorageServer {
    process: Process,
    address: SocketAddr,
    url: String,
    folder: TempDir,
}

impl StorageServer {
    /// Starts the program with a new SQLite database and further arguments.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start(program: &Program, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_listening(program, LOOPBACK, arguments).await
    }

    /// Starts the program on this address, such as `0.0.0.0:0`, with a new SQLite database and further
    /// arguments.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_listening(
        program: &Program,
        address: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let database_url = format!("sqlite:{}", folder.path().join("fenced.db").display());
        Self::start_in(folder, program.command(), address, &database_url, arguments).await
    }

    /// Starts the program with this database and further arguments.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_on(
        program: &Program,
        database_url: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        Self::start_in(folder, program.command(), LOOPBACK, database_url, arguments).await
    }

    /// Starts the program with this SQLite database on a disk that loses power, and further
    /// arguments.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_on_disk(
        program: &Program,
        disk: &Disk,
        database_url: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = program.command();
        disk.preload(&mut command);
        let folder = TempDir::with_prefix("fenced-")?;
        Self::start_in(folder, command, LOOPBACK, database_url, arguments).await
    }

    async fn start_in(
        folder: TempDir,
        mut command: Command,
        address: &str,
        database_url: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        command.args(["--listen", address, "--database-url", database_url]).args(arguments);
        let mut process = Process::spawn("storage-server", &command, folder.path())?;
        let line = process.line(START_TIMEOUT).await?;
        let url = line.strip_prefix("listening on ");
        let address = url.and_then(|url| url.split_once("://")?.1.parse().ok());
        let (Some(url), Some(address)) = (url, address) else {
            bail!("the storage server printed {line:?}");
        };
        Ok(Self { process, address, url: url.to_owned(), folder })
    }

    /// Returns its process, to pause or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns its log so far.
    ///
    /// # Errors
    /// If the log can't be read.
    pub fn log(&self) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("storage-server.stderr"))?)
    }
}
