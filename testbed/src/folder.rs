//! Copies of folders, such as backups.

use std::{fs, path::Path, process::Command};

use anyhow::ensure;

/// Copies a folder and what is in it, owners and rights included, in place of an older copy.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to);
    // Logs of databases are mostly zeros.
    #[cfg(target_os = "linux")]
    command.arg("--sparse=always");
    let output = command.output()?;
    ensure!(output.status.success(), "cp: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
