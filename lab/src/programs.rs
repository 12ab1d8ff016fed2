//! The programs of this workspace, which are built beside this one.

use std::{env, path::Path};

use anyhow::{Context, bail};
use testbed::Program;

/// Returns a program that is built beside this one.
///
/// # Errors
/// If it isn't there.
pub fn built(program: &str) -> anyhow::Result<Program> {
    let this = env::current_exe()?;
    let folder = this.parent().context("a program is in a folder")?;
    // Tests are built in a folder of their own, `deps`.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let file: &Path = &folder.join(program);
    if !file.is_file() {
        bail!("{} is not built; `cargo build` builds it", file.display());
    }
    Ok(Program::new(file))
}
