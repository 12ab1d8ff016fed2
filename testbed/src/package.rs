//! Programs that a package of the operating system installs.

use std::{env, path::PathBuf};

use anyhow::Context;

/// Returns the path of a program, from `PATH` or from one of the folders.
///
/// # Errors
/// If the program is in none of them. The error names the package that has it.
pub fn installed(program: &str, folders: &[PathBuf], package: &str) -> anyhow::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .with_context(|| format!("{program} is not installed; {package} has it"))
}
