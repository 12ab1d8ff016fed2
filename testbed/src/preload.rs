//! Libraries that processes preload (`LD_PRELOAD`).

use std::{env, path::PathBuf};

use anyhow::Context;

/// Returns the path of a library of a package on which this one depends, so that Cargo builds it for
/// every program that is built with this one. Cargo builds it into the folder `deps`, which also has
/// the tests; programs are beside that folder, and examples in another beside it.
///
/// # Errors
/// If the library isn't built.
pub(crate) fn library(name: &str) -> anyhow::Result<PathBuf> {
    let program = env::current_exe()?;
    let mut libraries = program.ancestors().map(|folder| folder.join("deps").join(name));
    libraries
        .find(|library| library.is_file())
        .with_context(|| format!("{name} is not in the folder deps of {}", program.display()))
}
