//! A private storage server.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use tempfile::TempDir;

use crate::{process::Process, program::Program};

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
        let folder = TempDir::with_prefix("fenced-")?;
        let database_url = format!("sqlite:{}", folder.path().join("fenced.db").display());
        Self::start_in(program, folder, &database_url, arguments).await
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
        Self::start_in(program, TempDir::with_prefix("fenced-")?, database_url, arguments).await
    }

    async fn start_in(
        program: &Program,
        folder: TempDir,
        database_url: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = program.command();
        command.args(["--listen", "127.0.0.1:0", "--database-url", database_url]).args(arguments);
        let mut process = Process::spawn("storage-server", &command, folder.path())?;
        let line = process.line(START_TIMEOUT).await?;
        let url = line.strip_prefix("listening on ");
        let address = url.and_then(|url| url.strip_prefix("http://")?.parse().ok());
        let address = address.with_context(|| format!("the storage server printed {line:?}"))?;
        let url = format!("http://{address}");
        Ok(Self { process, address, url, folder })
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
