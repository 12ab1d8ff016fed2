//! A private Redis.

use std::{os::unix::net::UnixStream, path::PathBuf, process::Command, time::Duration};

use anyhow::Context;
use tempfile::TempDir;

use super::{installed, temporary_folder};
use crate::process::{Process, until};

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A Redis of our own, on a Unix socket, that keeps nothing on disk.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    folder: TempDir,
}

impl Redis {
    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = temporary_folder()?;
        let program = installed("redis-server", &[], "the package redis-server (brew: redis)")?;
        let mut command = Command::new(program);
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(folder.path().join("redis.sock"))
            .arg("--dir")
            .arg(folder.path());
        let redis = Self { process: Process::spawn("redis", &command, folder.path())?, folder };
        until(START_TIMEOUT, || Ok(UnixStream::connect(redis.socket()).is_ok()))
            .await
            .context("redis-server did not start to listen")?;
        Ok(redis)
    }

    /// The process, to pause or kill.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sets a key.
    ///
    /// # Errors
    /// If Redis doesn't answer.
    pub async fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(redis::cmd("SET").arg(key).arg(value).exec_async(&mut connection).await?)
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }
}
