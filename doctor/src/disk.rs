//! The disk that a file is on.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::check::{Check, Verdict};

/// Checks the file, and the file system that it is on.
///
/// The file is not opened. To close a file ends all POSIX locks that its process has on it, and SQLite would go on as if
/// it had them: another process would delete the write-ahead log in use.
pub(crate) fn checks(file: &Path) -> Vec<Check> {
    let written = accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS);
    let found = match written {
        Ok(()) => format!("{} can be written", file.display()),
        Err(error) => format!("{} can't be written: {error}", file.display()),
    };
    let writable = Check::ok("file", found).unless(
        written.is_ok(),
        Verdict::Unfit,
        "nothing can be locked or written here",
        "let this user write the file, and create files beside it",
    );
    let mut checks = vec![writable];
    #[cfg(target_os = "linux")]
    checks.push(file_system(file));
    checks
}

/// The file systems over a network, as statfs(2) knows them: NFS, SMB, CIFS, and SMB in version 2.
#[cfg(target_os = "linux")]
const NETWORK: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];
/// Those in memory: tmpfs and ramfs.
#[cfg(target_os = "linux")]
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

#[cfg(target_os = "linux")]
fn file_system(file: &Path) -> Check {
    const NAME: &str = "file_system";
    // The type of the number differs between processors. No magic number has more bits.
    let kind = match rustix::fs::statfs(file) {
        Ok(system) => system.f_type as u32,
        Err(error) => {
            let found = format!("it could not be seen: {error}");
            return Check::unseen(NAME, found, "make sure that it is on a disk of this machine");
        }
    };
    Check::ok(NAME, format!("type {kind:#x}"))
        .unless(
            !NETWORK.contains(&kind),
            Verdict::Unfit,
            "it is a network's, whose file locks may not work between machines: then two holders get one token, or the \
             file is corrupted",
            "keep the file on a disk of this machine, for the processes of it only",
        )
        .unless(
            !MEMORY.contains(&kind),
            Verdict::UnfitForFence,
            "it is in memory, which is lost with the machine",
            "keep the file on a disk",
        )
}
