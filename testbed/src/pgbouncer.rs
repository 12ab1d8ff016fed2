//! A private PgBouncer.

use std::{
    fs,
    os::unix::{fs::chown, net::UnixStream},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use tempfile::TempDir;

use crate::{package::installed, postgres::Postgres, process::Process, user::User, wait::until};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const PACKAGE: &str = "the package pgbouncer (brew: pgbouncer)";
const PORT: u16 = 6432;

/// A private PgBouncer in transaction mode on a Unix socket, before a PostgreSQL.
#[derive(Debug)]
pub struct PgBouncer {
    _process: Process,
    folder: TempDir,
}

impl PgBouncer {
    /// Starts one with the default settings, and waits until it accepts connections.
    ///
    /// # Errors
    /// If PgBouncer isn't installed or doesn't start.
    pub async fn start(postgres: &Postgres) -> anyhow::Result<Self> {
        Self::start_with(postgres, &[]).await
    }

    /// Starts one with settings, each as `name = value`, and waits until it accepts connections.
    ///
    /// # Errors
    /// If PgBouncer isn't installed or doesn't start.
    pub async fn start_with(postgres: &Postgres, further: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("fenced-")?;
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n\
            * = host={} user=postgres\n\
            [pgbouncer]\n\
            pool_mode = transaction\n\
            auth_type = any\n\
            unix_socket_dir = {}\n\
            listen_port = {PORT}\n\
            {}\n",
            postgres.socket_folder().display(),
            folder.path().display(),
            further.join("\n"),
        );
        fs::write(&settings, text)?;
        // It does not run as root.
        let user = User::unprivileged("postgres", PACKAGE)?;
        if let Some(User { uid, gid }) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let mut command = Command::new(installed("pgbouncer", &["/usr/sbin".into()], PACKAGE)?);
        command.arg(&settings);
        let process = Process::spawn_as(user, "pgbouncer", &command, folder.path())?;
        let socket = folder.path().join(format!(".s.PGSQL.{PORT}"));
        until(START_TIMEOUT, || Ok(UnixStream::connect(&socket).is_ok()))
            .await
            .with_context(|| process.account("did not start to accept connections"))?;
        Ok(Self { _process: process, folder })
    }

    /// Returns the URL of the database `postgres`.
    pub fn url(&self) -> String {
        let folder = self.folder.path().display();
        format!("postgres://postgres@localhost:{PORT}/postgres?host={folder}")
    }
}
