//! A private PostgreSQL.

mod faults;
mod program;
mod replica;
mod start;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use rustix::process::Signal;
use tempfile::TempDir;

pub(crate) use self::{program::PACKAGE, start::make_cluster};
pub use self::{program::program, replica::PostgresReplica};
use crate::{clock::Clock, disk::Disk, process::Process, tls, user::User};

/// The port in the name of its socket.
const PORT: u16 = 5432;
/// How long it may take to start or to end.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A private PostgreSQL on a Unix socket, with the default settings but without JIT compilation.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    folder: TempDir,
    settings: Vec<String>,
    user: Option<User>,
    port: u16,
    disk: Option<Disk>,
}

impl Postgres {
    /// Returns the file of the authority's certificate, if it takes TLS.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join(tls::CA_CERTIFICATE)
    }

    /// Returns the port of 127.0.0.1 where it listens, if it takes TLS.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of its database `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Returns the URL of another of its databases.
    pub fn url_of(&self, database: &str) -> String {
        let (port, folder) = (self.port, self.folder.path().display());
        format!("postgres://postgres@localhost:{port}/{database}?host={folder}")
    }

    /// Returns the URL of the database `postgres` of several servers, in this order.
    pub fn url_of_all(servers: &[&Self]) -> String {
        let host = |server: &&Self| {
            let folder = server.folder.path().display().to_string().replace('/', "%2F");
            format!("{folder}:{}", server.port)
        };
        let hosts: Vec<_> = servers.iter().map(host).collect();
        format!("postgres://postgres@{}/postgres", hosts.join(","))
    }

    /// Returns the folder of its socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Changes a setting of the running server, as `name=value`, in a file that is not synced.
    ///
    /// # Errors
    /// If it doesn't run.
    pub fn reload_with(&self, setting: &str) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("PostgreSQL does not run")?;
        let mut file = File::options().append(true).open(self.data().join("postgresql.conf"))?;
        writeln!(file, "{setting}")?;
        process.signal(Signal::HUP)
    }

    /// Returns its clock.
    ///
    /// # Errors
    /// If it was not started with a clock of its own.
    pub fn clock(&self) -> anyhow::Result<Clock> {
        Clock::find(self.folder.path()).context("this PostgreSQL has the machine's clock")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.as_ref().is_some_and(Process::is_paused) {
            // It would not end.
            let _ = self.resume();
        }
        if let Some(process) = &mut self.process {
            // SIGKILL would leave shared memory behind.
            let _ = process.signal(Signal::QUIT);
            process.reap(Duration::from_secs(5));
        }
    }
}
