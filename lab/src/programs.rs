//! The programs that the lab runs as processes of their own.

use std::{env, path::Path};

use anyhow::{Context, bail};
use testbed::Program;

/// The client that scenarios drive: this program, run again.
///
/// # Errors
/// If the operating system does not know this program's path.
pub fn client() -> anyhow::Result<Program> {
    Program::this("client")
}

/// The storage server.
///
/// # Errors
/// If it isn't built.
pub fn storage_server() -> anyhow::Result<Program> {
    built("storage-server")
}

/// Finds a program that is built beside this one.
///
/// # Errors
/// If it isn't there.
pub fn built(program: &str) -> anyhow::Result<Program> {
    let this = env::current_exe()?;
    let folder = this.parent().context("a program is in a folder")?;
    // Cargo puts tests into a folder of their own, `deps`.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let file: &Path = &folder.join(program);
    if !file.is_file() {
        bail!("{} is not built; `cargo build` builds it", file.display());
    }
    Ok(Program::new(file))
}
