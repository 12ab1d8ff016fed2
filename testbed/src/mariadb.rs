//! A private MariaDB.

mod replica;

use std::{
    os::unix::{fs::chown, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use tempfile::TempDir;

pub use self::replica::MariaDbReplica;
use crate::{
    clock::Clock, folder::copy_folder, package::installed, process::Process,
    template::new_data_folder, tls, user::User, wait::until,
};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const PACKAGE: &str = "the package mariadb-server, 10.5 or newer (brew: mariadb)";

const INSTALL_OPTIONS: [&str; 4] =
    ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-name-resolve", LOG_SIZE];
/// Each server has a log of its own, whose default are 96 MiB.
const LOG_SIZE: &str = "--innodb-log-file-size=16M";

/// A private MariaDB on a Unix socket, with the default settings but for the size of its log.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    command: Command,
    user: Option<User>,
    folder: TempDir,
}

impl MariaDb {
    /// Starts one with empty databases, and waits until it accepts connections.
    ///
    /// # Errors
    /// If MariaDB isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one with options of `mariadbd`, like `--log-bin`.
    ///
    /// # Errors
    /// If MariaDB isn't installed or doesn't start.
    pub async fn start_with(options: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(TempDir::with_prefix("fenced-")?, options).await
    }

    /// Starts one with a [`clock`](Self::clock) of its own.
    ///
    /// # Errors
    /// If this is not Linux, or MariaDB isn't installed or doesn't start.
    pub async fn start_with_own_clock() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        Clock::new(folder.path())?;
        Self::start_in(folder, &[]).await
    }

    /// Starts one that takes TLS, also on its socket. Its certificate is for `127.0.0.1` and
    /// `localhost`, from an authority whose certificate is the [`ca_file`](Self::ca_file).
    ///
    /// # Errors
    /// If MariaDB or `openssl` isn't installed, or MariaDB doesn't start.
    pub async fn start_tls() -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        tls::make_certificates(folder.path())?;
        let key = folder.path().join(tls::KEY);
        if let Some(User { uid, gid }) = User::unprivileged("mysql", PACKAGE)? {
            chown(&key, Some(uid), Some(gid))?;
        }
        let options = [
            format!("--ssl-cert={}", folder.path().join(tls::CERTIFICATE).display()),
            format!("--ssl-key={}", key.display()),
        ];
        Self::start_in(folder, &options.each_ref().map(String::as_str)).await
    }

    async fn start_in(folder: TempDir, options: &[&str]) -> anyhow::Result<Self> {
        let user = User::unprivileged("mysql", PACKAGE)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let data = folder.path().join("data");
        let folders = [
            format!("--datadir={}", data.display()),
            // A server that starts removes all temporary tables from this folder, also those of
            // others.
            format!("--tmpdir={}", folder.path().display()),
        ];
        let install = program("mariadb-install-db")?;
        let make = || make_data_folder(&install, &folders, user);
        new_data_folder(&install, &INSTALL_OPTIONS, &data, make)?;

        let mut command = Command::new(program("mariadbd")?);
        command.arg("--no-defaults").args(&folders);
        command.arg(format!("--socket={}", socket(&folder).display()));
        command.args([LOG_SIZE, "--skip-networking"]).args(options);
        if let Some(clock) = Clock::find(folder.path()) {
            clock.preload(&mut command);
        }
        let process = Process::spawn_as(user, "mariadb", &command, folder.path())?;
        let server = Self { process, command, user, folder };
        server.until_ready().await?;
        Ok(server)
    }

    /// Kills it (SIGKILL), as in a crash.
    ///
    /// # Errors
    /// If the operating system does not allow it.
    pub fn crash(&mut self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts it again after a crash, on the same data.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let folder = self.folder.path();
        self.process = Process::spawn_as(self.user, "mariadb", &self.command, folder)?;
        self.until_ready().await
    }

    /// Kills it, and copies its data into a folder of its own. Start it again then.
    ///
    /// # Errors
    /// If the data can't be copied.
    pub fn back_up(&mut self) -> anyhow::Result<()> {
        self.crash()?;
        copy_folder(&self.data_folder(), &self.backup_folder())
    }

    /// Kills it, and starts it again with the data of the last backup.
    ///
    /// # Errors
    /// If there is no backup, or it doesn't start.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        self.crash()?;
        copy_folder(&self.backup_folder(), &self.data_folder())?;
        self.start_again().await
    }

    async fn until_ready(&self) -> anyhow::Result<()> {
        until(START_TIMEOUT, || Ok(UnixStream::connect(self.socket()).is_ok()))
            .await
            .context("MariaDB did not start to accept connections")
    }

    /// Pauses it (SIGSTOP).
    ///
    /// # Errors
    /// If it has ended.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.process.pause().await
    }

    /// Resumes it.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
    }

    /// Returns the URL of its database `test`.
    pub fn url(&self) -> String {
        format!("mariadb://root@localhost/test?socket={}", self.socket().display())
    }

    /// Returns the folder of its data and its binary log.
    pub fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn backup_folder(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// Returns its clock.
    ///
    /// # Errors
    /// If it was not started with a clock of its own.
    pub fn clock(&self) -> anyhow::Result<Clock> {
        Clock::find(self.folder.path()).context("this MariaDB has the machine's clock")
    }

    /// Returns the file of the authority's certificate, if it takes TLS.
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join(tls::CA_CERTIFICATE)
    }

    /// Returns its socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("mariadb.sock")
}

/// Makes the data folder, with a database `test` and a user `root` who has no password.
fn make_data_folder(install: &Path, folders: &[String], user: Option<User>) -> anyhow::Result<()> {
    let mut command = Command::new(install);
    command.args(INSTALL_OPTIONS).args(folders);
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    let output = command.output()?;
    // It writes some of its errors to stdout.
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    ensure!(output.status.success(), "mariadb-install-db failed: {stdout}{stderr}");
    Ok(())
}

/// Returns the path of one of MariaDB's programs.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    // Debian installs servers in this folder, which only root has in its PATH.
    installed(name, &["/usr/sbin".into()], PACKAGE)
}
