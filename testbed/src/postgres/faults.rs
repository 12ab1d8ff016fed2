//! What goes wrong with a PostgreSQL: crashes, losses of power, restored backups, and pauses.

use std::path::PathBuf;

use anyhow::Context;
use rustix::process::{Signal, kill_process};

use super::{Postgres, TIMEOUT};
use crate::{disk::Unsynced, folder::copy_folder, process::children};

impl Postgres {
    /// Ends all its processes at once without a checkpoint (SIGQUIT), as in a crash.
    ///
    /// # Errors
    /// If it doesn't run, or doesn't end.
    pub async fn crash(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("PostgreSQL does not run")?;
        process.signal(Signal::QUIT)?;
        process.exit(TIMEOUT).await?;
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

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }
}
