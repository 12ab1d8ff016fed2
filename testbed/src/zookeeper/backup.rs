//! Copies of the data, and servers that are restored from one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{ZooKeeper, launch};

impl ZooKeeper {
    /// Kills all members, and copies their data into a folder of its own. They start again when they
    /// are [restored](Self::restore) or [restarted](Self::restart).
    ///
    /// # Errors
    /// If the data can't be copied.
    pub fn back_up(&mut self) -> anyhow::Result<()> {
        self.kill_all()?;
        for number in 0..self.members.len() {
            copy(&self.data_folder(number), &self.backup_folder(number))?;
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
            copy(&self.backup_folder(number), &self.data_folder(number))?;
        }
        self.launch_all().await
    }

    fn backup_folder(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("{}.backup", launch::name(number)))
    }
}

/// Copies a folder and what is in it, in place of an older copy.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &copied)?;
        } else {
            fs::copy(entry.path(), copied)?;
        }
    }
    Ok(())
}
