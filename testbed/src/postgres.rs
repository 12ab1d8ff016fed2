//! A private PostgreSQL.

mod replica;

use std::{
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use self::replica::PostgresReplica;
use crate::{
    clock::Clock,
    disk::{Disk, Unsynced},
    folder::copy_folder,
    package::installed,
    ports::free_ports,
    process::Process,
    template::new_data_folder,
    tls,
    user::User,
    wait::until,
};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const PACKAGE: &str = "the package postgresql, 15 or newer (brew: postgresql@15)";

/// Each server has a log of its own, whose default are 16 MiB.
const INITDB_OPTIONS: [&str; 6] = [
    "--username=postgres",
    "--auth=trust",
    "--encoding=UTF8",
    "--no-locale",
    "--no-sync",
    "--wal-segsize=4",
];

/// The port in the name of its socket.
const PORT: u16 = 5432;

/// A private PostgreSQL on a Unix socket, with the default settings.
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
        let mut postgres = Self::prepare(settings, PORT)?;
        postgres.make_cluster()?;
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Starts one with a [`clock`](Self::clock) of its own.
    ///
    /// # Errors
    /// If this is not Linux, or PostgreSQL isn't installed or doesn't start.
    pub async fn start_with_own_clock() -> anyhow::Result<Self> {
        let mut postgres = Self::prepare(Vec::new(), PORT)?;
        Clock::new(postgres.folder.path())?;
        postgres.make_cluster()?;
        postgres.start_again().await?;
        Ok(postgres)
    }

    /// Starts one that can [lose power](Self::lose_power).
    ///
    /// # Errors
    /// If this is not Linux, or PostgreSQL isn't installed or doesn't start.
    pub async fn start_on_disk() -> anyhow::Result<Self> {
        let mut postgres = Self::prepare(Vec::new(), PORT)?;
        postgres.make_cluster()?;
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
        let mut postgres = Self::prepare(Vec::new(), port)?;
        postgres.make_cluster()?;
        let folder = postgres.folder.path();
        tls::make_certificates_for(folder, names)?;
        // PostgreSQL refuses a key that others own or may read.
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
        postgres.start_again().await?;
        Ok(postgres)
    }

    fn prepare(settings: Vec<String>, port: u16) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let user = User::unprivileged("postgres", PACKAGE)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        Ok(Self { process: None, folder, settings, user, port, disk: None })
    }

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

    /// Returns the folder of its socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends all its processes at once without a checkpoint (SIGQUIT), as in a crash.
    ///
    /// # Errors
    /// If it doesn't run, or doesn't end.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("PostgreSQL does not run")?;
        process.signal(Signal::QUIT)?;
        process.exit(START_TIMEOUT).await?;
        Ok(())
    }

    /// Ends it as in a crash, and copies its data into a folder of its own. Start it again then.
    ///
    /// # Errors
    /// If it doesn't run, or the data can't be copied.
    pub async fn back_up(&mut self) -> anyhow::Result<()> {
        self.crash().await?;
        copy_folder(&self.data(), &self.backup())
    }

    /// Ends it as in a crash, and starts it again with the data of the last backup.
    ///
    /// # Errors
    /// If it doesn't run, or there is no backup, or it doesn't start.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        self.crash().await?;
        copy_folder(&self.backup(), &self.data())?;
        self.start_again().await
    }

    /// Ends it as in a crash, and loses changes that were not synced. Start it again then.
    ///
    /// # Errors
    /// If it doesn't run, or was not started on a disk that loses power.
    pub async fn lose_power(&mut self, unsynced: Unsynced) -> anyhow::Result<()> {
        self.crash().await?;
        let disk = self.disk.as_ref().context("this PostgreSQL can't lose power")?;
        disk.lose_power(unsynced)
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

    /// Starts it again after a crash, on the same data.
    ///
    /// # Errors
    /// If it doesn't start.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(program("postgres")?);
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-c", "listen_addresses="]).arg("-p").arg(self.port.to_string());
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
        until(START_TIMEOUT, || Ok(self.is_ready()))
            .await
            .context("PostgreSQL did not start to accept connections")
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

    /// Pauses all its processes (SIGSTOP). Its main process alone would leave connections running.
    ///
    /// # Errors
    /// If it doesn't run.
    pub async fn pause(&self) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("PostgreSQL does not run")?;
        // The main process first, because it starts the others.
        process.pause().await?;
        for child in children(process.pid())? {
            // It may have ended.
            let _ = kill_process(child, Signal::STOP);
        }
        Ok(())
    }

    /// Resumes all its processes.
    ///
    /// # Errors
    /// If it doesn't run.
    pub fn resume(&self) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("PostgreSQL does not run")?;
        for child in children(process.pid())? {
            let _ = kill_process(child, Signal::CONT);
        }
        process.resume()
    }

    fn make_cluster(&self) -> anyhow::Result<()> {
        let (initdb, data) = (program("initdb")?, self.data());
        let mut command = Command::new(&initdb);
        command.args(INITDB_OPTIONS).arg("--pgdata").arg(&data);
        new_data_folder(&initdb, &INITDB_OPTIONS, &data, || self.run(command))
    }

    /// Runs a command to its end, as the user of the server.
    fn run(&self, mut command: Command) -> anyhow::Result<()> {
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        let output = command.output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{command:?} failed: {error}");
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A paused process would not end.
        let _ = self.resume();
        if let Some(process) = &mut self.process {
            // SIGKILL would leave shared memory behind.
            let _ = process.signal(Signal::QUIT);
            process.reap(Duration::from_secs(5));
        }
    }
}

/// Returns the ids of a process's children.
fn children(parent: Pid) -> anyhow::Result<Vec<Pid>> {
    let output = Command::new("ps").args(["-A", "-o", "ppid=,pid="]).output()?;
    let numbers = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<i32>().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let all = String::from_utf8(output.stdout)?;
    let pairs = all.lines().filter_map(numbers);
    let own = pairs.filter(|&(ppid, _)| ppid == parent.as_raw_nonzero().get());
    Ok(own.filter_map(|(_, pid)| Pid::from_raw(pid)).collect())
}

/// Returns the path of one of PostgreSQL's programs, of the newest version if there are several.
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
