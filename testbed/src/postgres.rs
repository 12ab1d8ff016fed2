//! A private PostgreSQL.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    installed,
    process::{Process, User},
    program::{temporary_folder, unprivileged_user},
    wait::until,
};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const PACKAGE: &str = "the package postgresql, 15 or newer (brew: postgresql@15)";

/// A PostgreSQL of our own, on a Unix socket, with the settings that it comes with.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    folder: TempDir,
    settings: Vec<String>,
    user: Option<User>,
}

impl Postgres {
    /// Makes a new cluster, starts it, and waits until it takes connections.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with settings, each as `name=value`.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed or doesn't start.
    pub async fn start_with(settings: &[&str]) -> anyhow::Result<Self> {
        let folder = temporary_folder()?;
        let user = unprivileged_user("postgres", PACKAGE)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut postgres = Self { process: None, folder, settings, user };
        postgres.make_cluster()?;
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Its URL; the database is `postgres`.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of another database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.folder.path().display())
    }

    /// The folder of its socket.
    pub fn socket_folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Kills it as a crash would, all its processes at once (SIGQUIT: no checkpoint, no farewell).
    ///
    /// # Errors
    /// If it doesn't end.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("it runs")?;
        process.signal(Signal::QUIT)?;
        process.exit(START_TIMEOUT).await?;
        Ok(())
    }

    /// Starts it again after a crash, on the same data.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(program("postgres")?);
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-c", "listen_addresses="]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        self.process = Some(match &self.user {
            Some(user) => Process::spawn_as(user, "postgres", &command, self.folder.path())?,
            None => Process::spawn("postgres", &command, self.folder.path())?,
        });
        let mut is_ready = Command::new(program("pg_isready")?);
        is_ready.arg("--quiet").arg("--host").arg(self.folder.path());
        until(START_TIMEOUT, || Ok(is_ready.status()?.success()))
            .await
            .context("PostgreSQL did not start to take connections")
    }

    fn make_cluster(&self) -> anyhow::Result<()> {
        let mut command = Command::new(program("initdb")?);
        command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]);
        command.arg("--no-sync").arg("--pgdata").arg(self.data());
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        let output = command.output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb failed: {error}");
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Killed outright, it would leave shared memory behind.
            let _ = process.signal(Signal::QUIT);
            process.reap(Duration::from_secs(5));
        }
    }
}

/// The path of one of PostgreSQL's programs.
///
/// # Errors
/// If it isn't installed.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let versions = |root: &str, prefix: &str| {
        let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(root)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let version = path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()?;
                Some((version, path.join("bin")))
            })
            .collect();
        versions.sort();
        versions.into_iter().rev().map(|(_, folder)| folder)
    };
    let folders: Vec<_> = versions("/usr/lib/postgresql", "")
        .chain(versions("/opt/homebrew/opt", "postgresql@"))
        .chain(versions("/usr/local/opt", "postgresql@"))
        .collect();
    installed(name, &folders, PACKAGE)
}
