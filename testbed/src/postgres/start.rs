//! Making and starting a PostgreSQL.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use super::{
    PORT, Postgres, TIMEOUT,
    program::{PACKAGE, program},
};
use crate::{
    clock::Clock, disk::Disk, ports::free_ports, process::Process, template::new_data_folder, tls,
    user::User, wait::until,
};

/// How often other ports are tried if another process takes a free one first.
const PORT_ATTEMPTS: usize = 20;

/// Each server has a log of its own, whose default are 16 MiB.
const INITDB_OPTIONS: [&str; 6] = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--no-locale",
    "--no-sync",
    "--wal-segsize=4",
];

impl Postgres {
    /// Starts one with empty databases, and waits until it accepts connections.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one with settings, each as `name=value`.
    ///
    /// # Errors
    /// If PostgreSQL isn't installed or doesn't start.
    pub async fn start_with(settings: &[&str]) -> anyhow::Result<Self> {
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut postgres = Self::prepare(settings, PORT)?.with_cluster().await?;
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Starts one with a [`clock`](Self::clock) of its own.
    ///
    /// # Errors
    /// If this is not Linux, or PostgreSQL isn't installed or doesn't start.
    pub async fn start_with_own_clock() -> anyhow::Result<Self> {
        let postgres = Self::prepare(Vec::new(), PORT)?;
        Clock::new(postgres.folder.path())?;
        let mut postgres = postgres.with_cluster().await?;
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Starts one that can [lose power](Self::lose_power).
    ///
    /// # Errors
    /// If this is not Linux, or PostgreSQL isn't installed or doesn't start.
    pub async fn start_on_disk() -> anyhow::Result<Self> {
        let mut postgres = Self::prepare(Vec::new(), PORT)?.with_cluster().await?;
        postgres.disk = Some(Disk::new(&postgres.data())?);
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Starts one that also listens on a free port of 127.0.0.1, where it takes TLS. Its certificate is
    /// for `127.0.0.1` and `localhost`, from an authority whose certificate is the
    /// [`ca_file`](Self::ca_file).
    ///
    /// # Errors
    /// If PostgreSQL or `openssl` isn't installed, or PostgreSQL doesn't start.
    pub async fn start_tls() -> anyhow::Result<Self> {
        Self::start_tls_as(tls::LOOPBACK).await
    }

    /// Starts one as [`start_tls`](Self::start_tls) does, whose certificate is for other names.
    ///
    /// # Errors
    /// If PostgreSQL or `openssl` isn't installed, or PostgreSQL doesn't start.
    pub async fn start_tls_as(names: &str) -> anyhow::Result<Self> {
        let [port] = free_ports()?;
        let mut postgres = Self::prepare(Vec::new(), port)?.with_cluster().await?;
        let folder = postgres.folder.path();
        tls::make_certificates_for(folder, names)?;
        // PostgreSQL rejects a key that others own or may read.
        let key = folder.join(tls::KEY);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
        if let Some(User { uid, gid }) = postgres.user {
            chown(&key, Some(uid), Some(gid))?;
        }
        postgres.settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", folder.join(tls::CERTIFICATE).display()),
            format!("ssl_key_file={}", key.display()),
        ];
        for _ in 0..PORT_ATTEMPTS {
            match postgres.start_again().await {
                Err(_) if postgres.found_its_port_taken()? => [postgres.port] = free_ports()?,
                started => return started.map(|()| postgres),
            }
        }
        bail!("{PORT_ATTEMPTS} times a port was free, and another process took it")
    }

    /// Whether it has ended because another process listens at its port.
    fn found_its_port_taken(&self) -> anyhow::Result<bool> {
        let process = self.process.as_ref().context("PostgreSQL does not run")?;
        Ok(process.stderr()?.contains("Address already in use"))
    }

    pub(super) fn prepare(settings: Vec<String>, port: u16) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let user = User::unprivileged("postgres", PACKAGE)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        Ok(Self { process: None, folder, settings, user, port, disk: None })
    }

    /// Starts it again after a crash, on the same data.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(program("postgres")?);
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-c", "listen_addresses="]).arg("-p").arg(self.port.to_string());
        // To load LLVM takes longer than any statement of a test.
        command.args(["-c", "jit=off"]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        if let Some(clock) = Clock::find(self.folder.path()) {
            clock.preload(&mut command);
        }
        if let Some(disk) = &self.disk {
            disk.preload(&mut command);
        }
        let process = Process::spawn_as(self.user, "postgres", &command, self.folder.path())?;
        self.process = Some(process);
        until(TIMEOUT, || Ok(self.is_ready() || self.has_ended()?))
            .await
            .context("PostgreSQL did not start to accept connections")?;
        let process = self.process.as_ref().context("PostgreSQL does not run")?;
        ensure!(self.is_ready(), process.account("has ended before it accepted connections"));
        Ok(())
    }

    fn has_ended(&mut self) -> anyhow::Result<bool> {
        self.process.as_mut().map_or(Ok(true), Process::has_ended)
    }

    /// Whether it accepts connections. Its main process notes so in the last line of its lock file,
    /// and its own id in the first one.
    fn is_ready(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let lock = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = lock.lines().map(str::trim);
        let pid = process.pid().as_raw_nonzero().to_string();
        lines.next() == Some(&pid) && matches!(lines.next_back(), Some("ready" | "standby"))
    }

    /// Makes its data folder. That takes up to some seconds, in which others on this thread go on. If this is
    /// dropped, the folder is removed when it is made.
    async fn with_cluster(self) -> anyhow::Result<Self> {
        let making = move || make_cluster(&self.data(), self.user).map(|()| self);
        tokio::task::spawn_blocking(making).await?
    }

    /// Runs a command to its end, as the user of the server.
    pub(super) fn run(&self, command: Command) -> anyhow::Result<()> {
        run_as(self.user, command)
    }
}

/// Makes a data folder with empty databases. The parent must belong to the user.
///
/// # Errors
/// If PostgreSQL isn't installed, or fails.
pub(crate) fn make_cluster(data: &Path, user: Option<User>) -> anyhow::Result<()> {
    let initdb = program("initdb")?;
    let mut command = Command::new(&initdb);
    command.args(INITDB_OPTIONS).arg("--pgdata").arg(data);
    new_data_folder(&initdb, &INITDB_OPTIONS, data, || run_as(user, command))
}

/// Runs a command to its end, as this user.
fn run_as(user: Option<User>, mut command: Command) -> anyhow::Result<()> {
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    let output = command.output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {error}");
    Ok(())
}
