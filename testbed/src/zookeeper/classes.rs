//! An archive of ZooKeeper's classes, which is made once. With it, a member starts with two thirds of
//! the processor time.
//!
//! Java makes one from version 13 on, and ignores one of other jars.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use super::{START_TIMEOUT, ZooKeeper, launch::JAVA};
use crate::template::{can_keep, keep, kept_folder};

const ARCHIVE: &str = "classes.jsa";

/// Returns the option for the archive, if it has been made.
pub(super) fn use_archive(java: &Path) -> anyhow::Result<Option<String>> {
    let archive = kept_folder(java, &JAVA)?.join(ARCHIVE);
    Ok(archive.is_file().then(|| format!("-XX:SharedArchiveFile={}", archive.display())))
}

/// Whether the archive has to be made.
pub(super) fn is_missing(java: &Path) -> anyhow::Result<bool> {
    Ok(can_keep() && !kept_folder(java, &JAVA)?.is_dir())
}

impl ZooKeeper {
    /// Returns the option with which a member makes the archive when it ends.
    pub(super) fn make_archive(&self) -> anyhow::Result<String> {
        let folder = self.classes_folder();
        fs::create_dir_all(&folder)?;
        Ok(format!("-XX:ArchiveClassesAtExit={}", folder.join(ARCHIVE).display()))
    }

    /// Ends all members, and keeps the archive that they make. An older Java makes none: then the
    /// folder that is kept is empty.
    pub(super) async fn keep_archive(&mut self, java: &Path) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.process.signal(Signal::TERM)?;
            member.process.exit(START_TIMEOUT).await?;
        }
        keep(&self.classes_folder(), &kept_folder(java, &JAVA)?)
    }

    fn classes_folder(&self) -> PathBuf {
        self.folder.path().join("classes")
    }
}
