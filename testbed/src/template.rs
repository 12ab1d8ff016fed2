//! What is made once for all tests: data folders of new databases, and the classes of Java programs.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::folder::copy_folder;

/// Where it is kept, if this program was built here.
const BUILD_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target");

/// Makes a data folder, or copies an earlier one of the same program with the same options.
///
/// To make one takes a second of processor time, and hundreds of tests need their own.
///
/// # Errors
/// If it can't be made or copied.
pub(crate) fn new_data_folder(
    program: &Path,
    options: &[&str],
    data: &Path,
    make: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let kept = kept_folder(program, options)?;
    if kept.is_dir() {
        return copy_folder(&kept, data);
    }
    make()?;
    if can_keep() { keep(data, &kept) } else { Ok(()) }
}

/// Whether there is a folder for what is kept.
pub(crate) fn can_keep() -> bool {
    Path::new(BUILD_FOLDER).is_dir()
}

/// Keeps a copy of a folder.
///
/// # Errors
/// If it can't be copied.
pub(crate) fn keep(folder: &Path, kept: &Path) -> anyhow::Result<()> {
    // A copy that was interrupted never has the final name.
    let parent = kept.parent().expect("it is in a folder");
    fs::create_dir_all(parent)?;
    let unfinished = TempDir::new_in(parent)?;
    let copy = unfinished.path().join("data");
    copy_folder(folder, &copy)?;
    // Another test may have made it meanwhile.
    let _ = fs::rename(copy, kept);
    Ok(())
}

/// Returns the folder of what is kept for a program. Another version of the program has another one,
/// and so have other options and another user.
///
/// # Errors
/// If there is no such program.
pub(crate) fn kept_folder(program: &Path, options: &[&str]) -> anyhow::Result<PathBuf> {
    let file = fs::metadata(program)?;
    let mut made_by = DefaultHasher::new();
    (file.len(), file.mtime(), options, geteuid().as_raw()).hash(&mut made_by);
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Ok(Path::new(BUILD_FOLDER).join("testbed").join(format!("{name}-{:x}", made_by.finish())))
}
