//! Files that decide whom the server trusts, and what other users of the machine may do with them.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::fs::OFlags;

/// A server reads such files again and again.
const MAX_BYTES: u64 = 1 << 20;

/// What the other users of the machine may do with a file: those that are neither its owner nor in its
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// They may read it.
    NoOtherWriters,
    /// They may not even read it.
    NoOtherReaders,
}

impl Guard {
    /// Checks the permissions of a file.
    fn check(self, mode: u32) -> io::Result<()> {
        let (rejected, reason) = match self {
            Self::NoOtherWriters => {
                (0o002, "all users of this machine may write to it; `chmod o-w` prevents that")
            }
            Self::NoOtherReaders => (
                0o006,
                "all users of this machine may read it or write to it; `chmod o-rw` prevents that",
            ),
        };
        if mode & rejected == 0 { Ok(()) } else { Err(io::Error::other(reason)) }
    }
}

/// Reads a file.
///
/// # Errors
/// If it can't be read, is larger than 1 MiB or no regular file, or if other users may do more with it.
pub(crate) fn read(path: &Path, guard: Guard) -> io::Result<Vec<u8>> {
    // The end of a pipe would be waited for.
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    read_open(&file, guard)
}

/// Reads a file that is open already.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_open(file: &File, guard: Guard) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    guard.check(metadata.permissions().mode())?;
    let mut bytes = Vec::new();
    if file.take(MAX_BYTES + 1).read_to_end(&mut bytes)? as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}
