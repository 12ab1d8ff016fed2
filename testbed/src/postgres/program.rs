//! PostgreSQL's programs.

use std::{fs, path::PathBuf};

use crate::package::installed;

pub(crate) const PACKAGE: &str = "the package postgresql, 15 or newer (brew: postgresql@15)";

/// Returns the path of one of PostgreSQL's programs, of the newest version if there are several.
///
/// # Errors
/// If it isn't installed.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let versions = |root: &str, prefix: &str| {
        let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(root)
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let version = path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()?;
                Some((version, path.join("bin")))
            })
            .collect();
        versions.sort();
        versions.into_iter().rev().map(|(_, folder)| folder)
    };
    let folders: Vec<_> = versions("/usr/lib/postgresql", "")
        .chain(versions("/opt/homebrew/opt", "postgresql@"))
        .chain(versions("/usr/local/opt", "postgresql@"))
        .collect();
    installed(name, &folders, PACKAGE)
}
