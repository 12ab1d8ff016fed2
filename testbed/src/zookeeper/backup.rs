//! Copies of the data, and servers that are restored from one.

use std::path::PathBuf;

use super::{ZooKeeper, launch};
use crate::folder::copy_folder;

impl ZooKeeper {
    /// Kills all members, and copies their data into a folder of its own. They start again when they
    /// are [restored](Self::restore) or [restarted](Self::restart).
    ///
    /// # Errors
    /// If the data can't be copied.
    pub fn back_up(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        for number in 0..self.members.len() {
            copy_folder(&self.data_folder(number), &self.backup_folder(number))?;
        }
        Ok(())
    }

    /// Kills all members, and starts them again with the data of the last backup.
    ///
    /// # Errors
    /// If there is no backup, or a member doesn't start.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        self.delete_data()?;
        for number in 0..self.members.len() {
            copy_folder(&self.backup_folder(number), &self.data_folder(number))?;
        }
        self.launch_all().await
    }

    fn backup_folder(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{}.backup", launch::name(number)))
    }
}
