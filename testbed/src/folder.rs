//! Copies of folders, such as backups.

use std::{fs, path::Path, process::Command};

use anyhow::ensure;

/// Copies a folder and what is in it, owners and rights included, in place of an older copy.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let output = Command::new("cp").arg("-a").arg(from).arg(to).output()?;
    ensure!(output.status.success(), "cp: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
