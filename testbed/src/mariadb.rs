//! A private MariaDB.

use std::{
    os::unix::{fs::chown, net::UnixStream, process::CommandExt},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};
use tempfile::TempDir;

use crate::{
    installed,
    process::{Process, User},
    program::{temporary_folder, unprivileged_user},
    wait::until,
};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const PACKAGE: &str = "the package mariadb-server, 10.5 or newer (brew: mariadb)";

/// A MariaDB of our own, on a Unix socket, with the settings that it comes with.
#[derive(Debug)]
pub struct MariaDb {
    _process: Process,
    folder: TempDir,
}

impl MariaDb {
    /// Makes a new data folder, starts it, and waits until it takes connections.
    ///
    /// # Errors
    /// If MariaDB isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = temporary_folder()?;
        let user = unprivileged_user("mysql", PACKAGE)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let folders = [
            format!("--datadir={}", folder.path().join("data").display()),
            // A server that starts removes temporary tables from this folder, those of others too.
            format!("--tmpdir={}", folder.path().display()),
        ];
        make_data_folder(&folders, user)?;

        let mut command = Command::new(program("mariadbd")?);
        command.arg("--no-defaults").args(&folders);
        command.arg(format!("--socket={}", socket(&folder).display()));
        command.arg("--skip-networking");
        let process = match &user {
            Some(user) => Process::spawn_as(user, "mariadb", &command, folder.path())?,
            None => Process::spawn("mariadb", &command, folder.path())?,
        };
        until(START_TIMEOUT, || Ok(UnixStream::connect(socket(&folder)).is_ok()))
            .await
            .context("MariaDB did not start to take connections")?;
        Ok(Self { _process: process, folder })
    }

    /// Its URL; the database is `test`.
    pub fn url(&self) -> String {
        format!("mariadb://root@localhost/test?socket={}", self.socket().display())
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("mariadb.sock")
}

/// Makes the data folder; the database in it is `test`, and `root` has no password.
fn make_data_folder(folders: &[String], user: Option<User>) -> anyhow::Result<()> {
    let mut command = Command::new(program("mariadb-install-db")?);
    command.arg("--no-defaults").args(folders);
    command.args(["--auth-root-authentication-method=normal", "--skip-name-resolve"]);
    if let Some(User { uid, gid }) = user {
        command.uid(uid).gid(gid);
    }
    let output = command.output()?;
    let [said, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(output.status.success(), "mariadb-install-db failed: {said}{error}");
    Ok(())
}

/// The path of one of MariaDB's programs.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    // Where Debian has servers, which is in the PATH of root alone.
    installed(name, &["/usr/sbin".into()], PACKAGE)
}
