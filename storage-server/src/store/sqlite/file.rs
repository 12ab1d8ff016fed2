//! The file of an SQLite database, as it was opened.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The file, its write-ahead log and the log's index, as they were opened. SQLite goes on using them
/// after they were deleted or replaced, and everything that it writes then is lost.
#[derive(Debug)]
pub(super) struct OpenedFile {
    parts: Vec<(PathBuf, Identity)>,
}

/// Device and inode.
type Identity = (u64, u64);

impl OpenedFile {
    /// Notes the identity of a database that is open.
    pub(super) fn note(path: &Path) -> io::Result<Self> {
        // Another folder may become the current one.
        let path = path.canonicalize()?;
        let parts = ["", "-wal", "-shm"].map(|suffix| {
            let mut part = OsString::from(&path);
            part.push(suffix);
            let part = PathBuf::from(part);
            identity(&part).map(|identity| (part, identity))
        });
        Ok(Self { parts: parts.into_iter().collect::<io::Result<_>>()? })
    }

    /// Checks that the paths still lead to these files.
    pub(super) fn check(&self) -> io::Result<()> {
        for (path, opened) in &self.parts {
            let found = identity(path);
            if !matches!(found, Ok(found) if found == *opened) {
                let reason = format!(
                    "{} was deleted or replaced while it was open: put the right file there, or \
                     restore a backup, and restart the server",
                    path.display()
                );
                return Err(io::Error::other(reason));
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
