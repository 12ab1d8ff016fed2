//! The disk that a file is on.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::check::{Check, Verdict};

/// Checks the file, and the file system that it is on.
///
/// The file is not opened. To close a file ends all POSIX locks that its process has on it, and SQLite
/// would go on as if it had them: another process would delete the write-ahead log in use.
pub fn examine(file: &Path) -> Vec<Check> {
    let mut checks = vec![writable(file)];
    #[cfg(target_os = "linux")]
    checks.push(file_system(file));
    checks
}

fn writable(file: &Path) -> Check {
    const NAME: &str = "file";
    let shown = file.display();
    match accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => Check::ok(NAME, format!("{shown} can be written")),
        Err(error) => Check::bad(
            Verdict::Unfit,
            NAME,
            format!("{shown} can't be written: {error}"),
            "nothing can be locked or written here",
            "let this user write the file, and create files beside it",
        ),
    }
}

/// The file systems that are unfit, as statfs(2) knows them.
#[cfg(target_os = "linux")]
const UNFIT: [(u32, &str); 4] = [
    (0x6969, "NFS, a network file system"),
    (0x517b, "SMB, a network file system"),
    (0xff53_4d42, "CIFS, a network file system"),
    (0xfe53_4d42, "SMB, a network file system"),
];
/// Those that are in memory.
#[cfg(target_os = "linux")]
const IN_MEMORY: [(u32, &str); 2] =
    [(0x0102_1994, "tmpfs, in memory"), (0x8584_58f6, "ramfs, in memory")];

#[cfg(target_os = "linux")]
fn file_system(file: &Path) -> Check {
    const NAME: &str = "file_system";
    let kind = match rustix::fs::statfs(file) {
        // The type of the number differs between processors. No magic number has more bits.
        Ok(system) => system.f_type as u32,
        Err(error) => {
            let found = format!("the file system of {} could not be seen: {error}", file.display());
            return Check::unseen(NAME, found, "make sure that it is on a disk of this machine");
        }
    };
    let of = |systems: &[(u32, &'static str)]| {
        systems.iter().find(|(unfit, _)| *unfit == kind).map(|(_, name)| *name)
    };
    if let Some(name) = of(&UNFIT) {
        let why = "file locks may not work between machines: then two holders get one token, or the file is \
                   corrupted";
        let cure = "keep the file on a disk of this machine, for the processes of it only";
        return Check::bad(Verdict::Unfit, NAME, name, why, cure);
    }
    if let Some(name) = of(&IN_MEMORY) {
        let why = "what is in memory is lost with the machine";
        return Check::bad(Verdict::UnfitForFence, NAME, name, why, "keep the file on a disk");
    }
    Check::ok(NAME, format!("type {kind:#x}, which is not seen to be in memory or on the network"))
}
