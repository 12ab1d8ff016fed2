//! A disk that loses power.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::ensure;

use crate::{folder::copy_folder, preload::library};

/// The library that keeps apart what was synced: the package `power-loss`. Its documentation says
/// what makes a change durable.
const LIBRARY: &str = "libpower_loss.so";
/// What a disk writes at once. SQLite and PostgreSQL have larger pages, which may be torn.
const BLOCK: usize = 512;

/// What a power loss leaves of the changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// All of them are lost.
    Lost,
    /// Each block of 512 bytes survives or not, by chance: the system may have written any of them
    /// already, in any order.
    HalfLost,
}

/// The disk under a folder, for processes that may lose power. It has only what they have synced.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
    synced: PathBuf,
    library: PathBuf,
}

impl Disk {
    /// Makes a disk of what is in a folder at this moment. Beside the folder, its files are named
    /// like the folder, with other extensions.
    ///
    /// # Errors
    /// If this is not Linux, or the library isn't built, or the folder can't be copied.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "only on Linux can a process lose power");
        let folder = folder.canonicalize()?;
        let synced = folder.with_extension("synced");
        copy_folder(&folder, &synced)?;
        // The process may run as a user that can't read the folder of the build.
        let copy = folder.with_extension("so");
        fs::copy(library(LIBRARY)?, &copy)?;
        Ok(Self { folder, synced, library: copy })
    }

    /// Returns the folder that processes see.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Gives the disk to a process that is about to start.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("FENCED_DISK_FOLDER", &self.folder);
        command.env("FENCED_DISK_SYNCED", &self.synced);
    }

    /// Loses changes that were not synced. Kill all processes that use the disk before.
    ///
    /// # Errors
    /// If a file can't be read or written.
    pub fn lose_power(&self, unsynced: Unsynced) -> anyhow::Result<()> {
        if unsynced == Unsynced::HalfLost {
            keep_half(&self.folder, &self.synced)?;
        }
        copy_folder(&self.synced, &self.folder)
    }
}

/// Copies about half of the blocks that were not synced, by chance. Files and folders that were never
/// synced are lost, and what was deleted is still there.
fn keep_half(folder: &Path, synced: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(synced)? {
        let entry = entry?;
        let (synced, seen) = (entry.path(), folder.join(entry.file_name()));
        if !seen.exists() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            keep_half(&seen, &synced)?;
            continue;
        }
        let (seen, known) = (fs::read(seen)?, fs::read(&synced)?);
        let file = fs::File::options().write(true).open(synced)?;
        for (number, block) in seen.chunks(BLOCK).enumerate() {
            let start = number * BLOCK;
            let is_synced = known.get(start..).is_some_and(|known| known.starts_with(block));
            if !is_synced && rand::random() {
                file.write_all_at(block, start as u64)?;
            }
        }
    }
    Ok(())
}
